from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common import UserError
from tasks.lis import LIS


@given(st.lists(st.integers(10, 20), min_size=1, max_size=9))
@settings(max_examples=50, deadline=None)
def test_solver_against_all_subsequences(numbers: list[int]) -> None:
    expected = [
        max(
            count
            for count in range(1, i + 2)
            for chosen in combinations(numbers[: i + 1], count)
            if chosen[-1] == numbers[i] and all(a < b for a, b in pairwise(chosen))
        )
        for i in range(len(numbers))
    ]
    # equal numbers: a subsequence ending at an earlier equal one is no longer than this one's
    chain, answer = LIS(9).solve([*map(str, numbers), "<sep>"])
    assert chain == [*map(str, expected), "<sep>"]
    assert answer == [str(max(expected))]


def test_hand_worked_table() -> None:
    task = LIS(6)
    sequence = task.complete("56 146 115 222 151 88 <sep>".split())
    assert " ".join(sequence.chain) == "1 2 2 3 3 2 <sep>"
    assert sequence.answer == ["3"]
    assert LIS(3).solve("9 9 9 <sep>".split()) == (["1", "1", "1", "<sep>"], ["1"])


@pytest.mark.parametrize("size", [1, 2, 3, 40, 250])
def test_every_sequence_has_the_longest_length(size: int) -> None:
    task, direct = LIS(size), LIS(size, "direct")
    assert task.max_len == 2 * size + 3
    assert set(task.draw(0, 0, 0, 50).lengths - 1) == {2 * size + 3}
    assert set(direct.draw(0, 0, 0, 50).lengths - 1) == {size + 2} == {direct.max_len}


def test_number_range() -> None:
    assert LIS(110).number_range == 250
    assert LIS(175).number_range == 351
    assert LIS(250).vocabulary.dtype == np.uint16
    with pytest.raises(UserError, match="number_range=20 must be at least 21"):
        LIS(10, number_range=20)
    with pytest.raises(UserError, match="number_range=65535 must be at most 65,534"):
        LIS(10, number_range=65535)
    assert len(LIS(10, number_range=65534).vocabulary) == 2**16
    assert LIS(10, number_range=65534).vocabulary.encode(["65533"])[0] == 2**16 - 1


def test_dependencies() -> None:
    task = LIS(2)
    sequence = task.complete("5 6 <sep>".split())
    assert task.dependencies(sequence) == [[0], [0, 1, 3], [], [3, 4]]
    assert task.chain_steps(sequence) == [0, 1, 2, 3]
