"""Labels beside tokens: the same content in every form, and nothing new where there are none."""

import numpy as np
import pytest

from common import UserError
from tasks import store
from tasks.data import DataSpec, draw_measured, load_or_build
from tasks.ed import EditDistance
from tasks.generate import SeenPrompts, prompt_hashes
from tasks.lis import LIS
from tasks.word import Word

TAGGED = [LIS(6, "tagged"), Word(6, "tagged", "S3", "all")]


@pytest.mark.parametrize("task", TAGGED, ids=lambda task: task.name)
def test_labels_are_the_chain(task):
    drawn, cot = task.draw(4, 1, 7, 50), task.with_parameters(format="cot").draw(4, 1, 7, 50)
    for row in range(50):
        example, whole = (
            task.decode(drawn, row),
            task.with_parameters(format="cot").decode(cot, row),
        )
        assert example.prompt == whole.prompt
        assert example.answer == whole.chain[:-1]
        assert task.check(example.tokens) is None
        wrong = next(token for token in task.vocabulary.tokens[3:] if token != example.answer[-1])
        assert task.check([*example.tokens[:-1], wrong]) is not None
        assert len(task.dependencies(example)) == len(task.chain_steps(example)) == 6
    encoded = task.encode([task.decode(drawn, row) for row in range(50)])
    for name in ("tokens", "lengths", "prompt_lengths", "labels"):
        assert (getattr(encoded, name) == getattr(drawn, name)).all()
    assert drawn.tokens.shape == drawn.labels.shape == (50, task.max_len + 1)
    assert (drawn.select(slice(3, 5)).labels == drawn.labels[3:5]).all()


def test_by_hand():
    task = LIS(3, "tagged")
    assert task.complete("9 7 8 <sep>".split()).tokens == "9 7 8 <sep> 1 1 2".split()
    encoded = task.encode([task.complete("9 7 8 <sep>".split())])
    assert task.vocabulary.decode(encoded.tokens[0]) == "<sep> 9 7 8 <eos>".split()
    assert task.vocabulary.decode(encoded.labels[0]) == "<pad> <pad> 1 1 2".split()
    assert task.max_len == 4


def test_a_task_without_labels_says_so():
    with pytest.raises(UserError, match="format='tagged' must be one of cot, direct"):
        EditDistance(4, "tagged")


@pytest.mark.parametrize("task", TAGGED, ids=lambda task: task.name)
def test_prompts_are_told_apart_by_all_their_tokens(task):
    drawn = task.draw(0, 0, 0, 300)
    different = len(set(map(bytes, drawn.tokens)))
    assert len(set(prompt_hashes(drawn).tolist())) == different > 250
    seen = SeenPrompts(400)
    assert seen.add(drawn).sum() == different
    assert not seen.add(drawn).any()


@pytest.mark.parametrize("task", TAGGED, ids=lambda task: task.name)
def test_stored_sets_come_back_with_their_labels(task, tmp_path):
    spec = DataSpec(200, 20, 30, directory=str(tmp_path))
    built = load_or_build(task, spec, progress=False)
    loaded = load_or_build(task, spec, progress=False)
    assert loaded.samples_per_second is None
    assert loaded.fingerprint == built.fingerprint
    for split in ("train", "validation", "test"):
        one, other = getattr(built, split), getattr(loaded, split)
        assert (one.labels == other.labels).all() and one.labels.dtype == other.labels.dtype
        assert (one.tokens == other.tokens).all()
        assert [task.check(task.decode(other, row).tokens) for row in range(10)] == [None] * 10
    changed = {split: getattr(built, split) for split in ("train", "validation", "test")}
    changed["test"].labels[0, 2] += 1
    assert store.fingerprint(changed) != built.fingerprint


def test_measured_sets_leave_out_what_was_trained_on():
    task = Word(4, "tagged", "S3")
    known = task.draw(0, 2, 0, 40)
    measured = draw_measured(task, 40, 0, known, progress=False)
    given = set(map(bytes, known.tokens))
    assert measured.labels is not None
    assert not given & set(map(bytes, measured.tokens))


def test_sets_without_labels_are_stored_as_before(tmp_path):
    """No column more, and the fingerprint of the three arrays alone."""
    task = LIS(5)
    load_or_build(task, DataSpec(20, 5, 5, directory=str(tmp_path)), progress=False)
    [folder] = [path for path in tmp_path.iterdir() if path.is_dir()]
    sets, _ = store.load(folder)
    assert all(split.labels is None for split in sets.values())
    with store.quiet_datasets() as datasets:
        names = datasets.Dataset.load_from_disk(str(folder / "test")).column_names
    assert names == ["tokens", "lengths", "prompt_lengths"]
    assert np.array_equal(sets["test"].given_lengths, sets["test"].prompt_lengths)
