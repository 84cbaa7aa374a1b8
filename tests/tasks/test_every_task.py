"""Every conf/task/*.yaml, found by itself, held to what a task promises (`tasks.task`).

`pytest tests/tasks/test_every_task.py --config-dir=DIR -k NAME` holds DIR/task/NAME.yaml to it.
"""

import random
from typing import Any

import numpy as np
import pytest
import yaml

from common import UserError
from config.compose import config_folders
from tasks.by_name import build_task
from tasks.task import EOS_ID, PAD_ID, Task

FILES = {path.stem: path for folder in config_folders("task") for path in folder.glob("*.yaml")}
VARIANTS = {
    "arithmetic": [{"order": "growth"}],
    "mqar": [{"queries": 2}],
    "word": [{"monoid": "S3", "letters": "all"}, {"monoid": "flip-flop"}],
    "closure": [{"monoid": "S3", "r": 2}],
}


def tasks_of(name: str) -> list[Task]:
    """The task by its file, small, in every format that it has, and our variants of it."""
    settings = yaml.safe_load(FILES[name].read_text(encoding="utf-8"))
    variants = [{**settings, **changes} for changes in ({}, *VARIANTS.get(name, []))]
    made = [small(variant) for variant in variants]
    return [task.with_parameters(format=format) for task in made for format in task.formats]


def small(settings: dict[str, Any]) -> Task:
    """The task at size 6, or at its own where it is smaller or does not go down to 6."""
    try:
        return build_task({**settings, "size": min(settings["size"], 6)})
    except UserError:
        return build_task(settings)


ALL = [task for name in sorted(FILES) for task in tasks_of(name)]
READ = [task for task in ALL if not task.labelled]
LABELLED = [task for task in ALL if task.labelled]


def each(tasks: list[Task]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("task", tasks, ids=lambda task: f"{task.name}-{task.parameters}")


def test_the_files_are_found() -> None:
    assert {"arithmetic", "lis", "ed", "ed_local"} <= set(FILES)


@each(READ)
def test_rows_are_closed_and_padded(task: Task) -> None:
    drawn = task.draw(0, 2, 0, 200)
    assert drawn.tokens.shape == (200, task.max_len + 1)
    assert drawn.tokens.dtype == task.vocabulary.dtype
    assert drawn.lengths.dtype == drawn.prompt_lengths.dtype == np.int32
    assert drawn.prompt_lengths.max() <= task.max_prompt_len
    marker = task.vocabulary.index[task.answer_marker]
    for row, length, prompt_length in zip(
        drawn.tokens, drawn.lengths, drawn.prompt_lengths, strict=True
    ):
        assert row[length - 1] == EOS_ID
        assert (row[length:] == PAD_ID).all()
        assert (row[: length - 1] > EOS_ID).all()
        assert (row[:prompt_length] == marker).sum() == 1


@each(LABELLED)
def test_labels_lie_beside_the_prompt(task: Task) -> None:
    drawn = task.draw(0, 2, 0, 200)
    marker = task.vocabulary.index[task.answer_marker]
    assert drawn.labels is not None and drawn.labels.shape == drawn.tokens.shape
    assert (drawn.tokens[:, 0] == marker).all() and (drawn.prompt_lengths == 2).all()
    for row, labels, length in zip(drawn.tokens, drawn.labels, drawn.lengths, strict=True):
        assert row[length - 1] == EOS_ID
        assert (row[length:] == PAD_ID).all()
        assert not labels[:2].any() and not labels[length:].any()


@each(ALL)
def test_what_is_drawn_is_what_the_plain_solver_says(task: Task) -> None:
    """Compiled or not: every row, of every size that training mixes, its chain by `check`."""
    for size in task.training_mixture():
        drawn = task.draw(3, 0, 0, 20, size)
        for row in range(20):
            example = task.decode(drawn, row)
            assert example.answer == task.complete(example.prompt).answer
            assert task.with_parameters(size=size).check(example.tokens) is None


@each(ALL)
def test_a_candidate_depends_on_its_index_alone(task: Task) -> None:
    whole = task.draw(7, 1, 100, 50)
    parts = [task.draw(7, 1, 100, 13), task.draw(7, 1, 113, 37)]
    assert (np.concatenate([part.tokens for part in parts]) == whole.tokens).all()
    for other in [(8, 1, 100), (7, 2, 100), (7, 1, 101)]:
        assert (task.draw(*other, 50).tokens != whole.tokens).any(axis=1).mean() > 0.5


@each(ALL)
def test_encoding_and_decoding_are_inverse(task: Task) -> None:
    sequences = [task.sample(random.Random(i)) for i in range(50)]
    encoded = task.encode(sequences)
    assert [task.decode(encoded, row) for row in range(50)] == sequences
    assert len(encoded.select(np.arange(50) % 2 == 0)) == 25


@each(ALL)
def test_parameters_make_the_same_task(task: Task) -> None:
    again = task.with_parameters()
    assert again.parameters == task.parameters
    assert (again.draw(0, 0, 0, 5).tokens == task.draw(0, 0, 0, 5).tokens).all()
    assert sum(task.training_mixture().values()) == pytest.approx(1)


@each(READ)
def test_dependencies_and_steps_fit_the_sequence(task: Task) -> None:
    for seed in range(20):
        sequence = task.sample(random.Random(seed))
        needed, steps = task.dependencies(sequence), task.chain_steps(sequence)
        first = len(sequence.prompt)
        assert len(needed) == len(steps) == len(sequence.tokens) - first
        assert all(0 <= i < first + k for k, own in enumerate(needed) for i in own)
        assert steps[0] == 0
        assert set(np.diff(steps).tolist()) <= {0, 1}


@each(READ)
def test_mutated_lines_are_rejected(task: Task) -> None:
    """One token changed to another: only a changed prompt can still fit, and then by chance."""
    rng = random.Random(0)
    own = task.vocabulary.tokens[2:]
    accepted = 0
    for seed in range(300):
        sequence = task.sample(random.Random(seed))
        tokens = sequence.tokens
        place = rng.randrange(len(tokens))
        tokens[place] = rng.choice([token for token in own if token != tokens[place]])
        if task.check(tokens) is None:
            assert place < len(sequence.prompt), (sequence, tokens)
            completed = task.complete(tokens[: len(sequence.prompt)])
            assert completed.answer == tokens[-len(completed.answer) :]
            accepted += 1
    assert accepted < (60 if task.format == "cot" else 240)
