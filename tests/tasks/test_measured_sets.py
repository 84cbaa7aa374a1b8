"""Sets for measuring a model: prompts that it did not train on."""

import numpy as np
import pytest

from common import UserError
from tasks.arithmetic import Arithmetic
from tasks.data import DataSpec, build, draw_measured
from tasks.ed import EditDistance
from tasks.generate import STREAMS
from tasks.lis import LIS
from tasks.task import SequenceSet, Task


def prompts(sequences: SequenceSet) -> set[tuple[int, ...]]:
    return {
        tuple(row[:length].tolist())
        for row, length in zip(sequences.tokens, sequences.prompt_lengths, strict=True)
    }


@pytest.mark.parametrize("size", [1, 2, 3])
def test_prompts_are_those_first_drawn_that_were_not_trained_on(size: int) -> None:
    """By a plain Python set over the tokens instead of hashes in a table."""
    trained_on = Arithmetic(3, capacity=4)
    sets, _ = build(trained_on, DataSpec(2000, 50, 50), progress=False)
    trained = prompts(sets["train"]) | prompts(sets["validation"])
    task = Arithmetic(size, capacity=4)
    count = {1: 60, 2: 500, 3: 500}[size]
    measured = draw_measured(task, count, 5, [sets["train"], sets["validation"]], progress=False)
    candidates = task.draw(5, STREAMS["measure"], 0, 40_000)
    expected: dict[tuple[int, ...], int] = {}
    for index in range(len(candidates)):
        prompt = tuple(candidates.tokens[index, : candidates.prompt_lengths[index]].tolist())
        if prompt not in trained:
            expected.setdefault(prompt, index)
    assert len(prompts(measured)) == count
    first = candidates.select(list(expected.values())[:count])
    assert np.array_equal(measured.tokens, first.tokens)
    assert np.array_equal(measured.lengths, first.lengths)
    everything = prompts(candidates)
    assert everything & trained  # else nothing was left out


def test_one_set_may_be_left_out_and_workers_change_nothing() -> None:
    task = LIS(6, capacity=10)
    train = build(task, DataSpec(500, 0, 0), progress=False)[0]["train"]
    one = draw_measured(task, 300, 1, train, progress=False)
    two = draw_measured(task, 300, 1, [train], workers=3, progress=False)
    assert np.array_equal(one.tokens, two.tokens)
    again = draw_measured(task, 300, 2, train, progress=False)
    assert not np.array_equal(one.tokens, again.tokens)


def test_streams_are_of_their_own() -> None:
    assert len(set(STREAMS.values())) == len(STREAMS) == 4
    assert STREAMS["measure"] == 3
    task = EditDistance(5)
    sets, _ = build(task, DataSpec(200, 200, 200), progress=False)
    measured = prompts(draw_measured(task, 200, 0, progress=False))
    assert all(len(measured & prompts(own)) < 5 for own in sets.values())


def test_too_few_prompts_that_were_not_trained_on() -> None:
    """473 one-operator expressions exist."""
    task = Arithmetic(1)
    train = build(task, DataSpec(400, 0, 0), progress=False)[0]["train"]
    assert len(draw_measured(task, 73, 0, train, progress=False)) == 73
    said = "too few distinct prompts outside the given sets: measure wants 74, reached 73"
    with pytest.raises(UserError, match=said):
        draw_measured(task, 74, 0, train, progress=False)


def test_sets_of_another_vocabulary_are_refused() -> None:
    small: Task = LIS(100)
    train = build(small, DataSpec(10, 0, 0), progress=False)[0]["train"]
    with pytest.raises(UserError, match="not of the same vocabulary"):
        draw_measured(LIS(100, capacity=300), 10, 0, train, progress=False)
