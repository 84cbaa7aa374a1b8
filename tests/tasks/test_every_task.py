"""Checks of the `Task` interface for every conf/task/*.yaml.

`pytest tests/tasks/test_every_task.py --config-dir=DIR -k NAME` checks DIR/task/NAME.yaml.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from common import CONF_DIR, UserError
from tasks.sequences import EOS_ID, PAD_ID
from tasks.task import Task, build_task

VARIANTS = {
    "arithmetic": [{"order": "growth"}],
    "mqar": [{"queries": 2}],
    "word": [{"monoid": "S3", "letters": "all"}, {"monoid": "flip-flop"},
             {"question": "member", "tail": "omega", "format": "cot"}],
    "closure": [{"monoid": "S3", "r": 2}],
}  # fmt: skip


def tasks_of(path: Path) -> list[Task]:
    settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    made = []
    for changes in ({}, *VARIANTS.get(path.stem, [])):
        task = small({**settings, **changes})
        formats = [changes["format"]] if "format" in changes else task.formats
        made += [task.with_parameters(format=format) for format in formats]
    return made


def small(settings: dict[str, Any]) -> Task:
    """The task at size 6, or at its own size if that is smaller or 6 is too small."""
    try:
        return build_task({**settings, "size": min(settings["size"], 6)})
    except UserError:
        return build_task(settings)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise `task` with all tasks, `chained` with those of format cot."""
    folders = [CONF_DIR, Path(metafunc.config.getoption("--config-dir", None) or CONF_DIR)]
    files = {path.stem: path for folder in folders for path in folder.glob("task/*.yaml")}
    assert {"arithmetic", "lis", "ed", "ed_local"} <= set(files)
    tasks = [(name, task) for name in sorted(files) for task in tasks_of(files[name])]
    chained = [(name, task) for name, task in tasks if task.format == "cot"]
    chosen = {"task": tasks, "chained": chained}
    for fixture in set(chosen) & set(metafunc.fixturenames):
        ids = [f"{name}-{task.parameters}" for name, task in chosen[fixture]]
        metafunc.parametrize(fixture, [task for _, task in chosen[fixture]], ids=ids)


def test_rows_are_padded_and_labels_are_outside_the_prompt(task: Task) -> None:
    drawn = task.draw(0, 2, 0, 200)
    assert drawn.tokens.shape == (200, task.max_len + 1)
    assert drawn.tokens.dtype == task.vocabulary.dtype
    assert drawn.lengths.dtype == drawn.prompt_lengths.dtype == np.int32
    columns, lengths = np.arange(task.max_len + 1), drawn.lengths[:, None]
    assert (drawn.tokens[columns == lengths - 1] == EOS_ID).all()
    assert (drawn.tokens[columns >= lengths] == PAD_ID).all()
    assert (drawn.tokens[columns < lengths - 1] > EOS_ID).all()
    prompt = columns < drawn.prompt_lengths[:, None]
    markers = drawn.tokens == task.vocabulary.index[task.answer_marker]
    assert ((markers & prompt).sum(1) == 1).all()
    assert (drawn.labels is not None) == task.labelled
    if task.labelled:
        assert markers[:, 0].all() and (drawn.prompt_lengths == 2).all()
        assert not drawn.labels[prompt | (columns >= lengths)].any()
    else:
        assert (drawn.prompt_lengths < drawn.lengths).all()


def test_drawn_sequences_match_the_plain_solver(task: Task) -> None:
    """For every size in the training mixture; `check` verifies the chains."""
    for size in task.training_mixture():
        drawn = task.draw(3, 0, 0, 20, size)
        for row in range(20):
            example = task.decode(drawn, row)
            assert example.answer == task.complete(example.prompt).answer
            assert task.with_parameters(size=size).check(example.tokens) is None
            assert task.check(example.tokens) is None


def test_candidates_depend_only_on_seed_stream_and_index(task: Task) -> None:
    whole = task.draw(7, 1, 100, 50)
    parts = [task.draw(7, 1, 100, 13), task.draw(7, 1, 113, 37)]
    assert (np.concatenate([part.tokens for part in parts]) == whole.tokens).all()
    for other in [(8, 1, 100), (7, 2, 100), (7, 1, 101)]:
        assert (task.draw(*other, 50).tokens != whole.tokens).any(axis=1).mean() > 0.5


def test_encoding_and_decoding_are_inverse(task: Task) -> None:
    drawn = task.draw(0, 2, 0, 50)
    sequences = [task.decode(drawn, row) for row in range(50)]
    encoded = task.encode(sequences)
    assert encoded.arrays.keys() == drawn.arrays.keys()
    for name, array in encoded.arrays.items():
        assert (array == drawn.arrays[name]).all()
    assert [task.decode(encoded, row) for row in range(50)] == sequences


def test_dependencies_fit_the_sequence(chained: Task) -> None:
    drawn = chained.draw(0, 2, 0, 20)
    for sequence in (chained.decode(drawn, row) for row in range(20)):
        needed, first = chained.dependencies(sequence), len(sequence.prompt)
        assert len(needed) == len(sequence.tokens) - first
        assert all(0 <= i < first + k for k, own in enumerate(needed) for i in own)
