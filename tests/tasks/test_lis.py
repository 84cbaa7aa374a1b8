from itertools import combinations, pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

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
    chain, answer = LIS(9).solve([*map(str, numbers), "<sep>"])
    assert chain == [*map(str, expected), "<sep>"]
    assert answer == [str(max(expected))]


def test_number_range() -> None:
    assert (LIS(110).number_range, LIS(175).number_range) == (250, 351)
    assert LIS(250).vocabulary.dtype == np.uint16
    assert len(LIS(10, number_range=65534).vocabulary) == 2**16
    assert LIS(10, number_range=65534).vocabulary.encode(["65533"])[0] == 2**16 - 1
