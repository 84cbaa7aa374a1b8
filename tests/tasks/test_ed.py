from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common import UserError
from tasks.ed import EditDistance, distances
from tasks.ed_local import EditDistanceLocal

WORDS = st.lists(st.sampled_from("abc"), min_size=1, max_size=6)


@given(WORDS, WORDS)
def test_table_against_the_recursive_definition(one: list[str], two: list[str]) -> None:
    @cache
    def distance(i: int, j: int) -> int:
        if i == 0 or j == 0:
            return i + j  # the border counts 1 a letter
        replaced = distance(i - 1, j - 1) + (0 if one[i - 1] == two[j - 1] else 3)
        return min(replaced, distance(i - 1, j) + 2, distance(i, j - 1) + 2)

    expected = [[distance(i + 1, j + 1) for j in range(len(two))] for i in range(len(one))]
    assert distances(one, two) == expected


def test_hand_worked_tables() -> None:
    chain, answer = EditDistance(3).solve("r x | c r o <sep>".split())
    assert (" ".join(chain), answer) == ("3 1 3 , 4 3 4 , <sep>", ["4"])
    local, answer = EditDistanceLocal(3).solve("r x | c r o <sep>".split())
    assert (" ".join(local), answer) == ("3 1 3 , x | c r o <sep> 4 3 4 , <sep>", ["4"])


@pytest.mark.parametrize("size", [1, 2, 3, 6, 20])
def test_longest_sequence_is_reached_and_never_exceeded(size: int) -> None:
    task, local = EditDistance(size), EditDistanceLocal(size)
    assert task.max_len == size**2 + 5 * size + 6
    assert local.max_len == task.max_len + (size - 1) * (size + 4) + size * (size - 1) // 2
    for each in (task, local, EditDistance(size, "direct")):
        assert each.draw(0, 0, 0, 5000).lengths.max() - 1 == each.max_len


@pytest.mark.parametrize("size", [1, 2, 6, 20])
def test_largest_entry_has_a_token_and_none_is_larger(size: int) -> None:
    task = EditDistance(size)
    table = distances(["a"] * size, ["b"] * (size + 2))
    assert max(map(max, table)) == task.largest_distance
    assert str(task.largest_distance) == task.own_tokens[-1]


def test_local_has_the_same_prompts_and_answers() -> None:
    task, local = EditDistance(6), EditDistanceLocal(6)
    one, two = task.draw(0, 0, 0, 100), local.draw(0, 0, 0, 100)
    for row in range(100):
        a, b = task.decode(one, row), local.decode(two, row)
        assert (a.prompt, a.answer) == (b.prompt, b.answer)


def test_dependencies_of_a_short_chain() -> None:
    task = EditDistance(2)
    sequence = task.complete("a b | c d <sep>".split())
    # a b | c d <sep> 0..5, first row 6 7 , second row 9 10 , <sep> answer
    assert task.dependencies(sequence) == [
        [0, 3], [0, 4, 6], [], [1, 3, 6], [1, 4, 9, 7, 6], [], [], [10],
    ]  # fmt: skip
    assert task.chain_steps(sequence) == [0, 0, 0, 1, 1, 1, 2, 2]


def test_dependencies_of_a_short_local_chain() -> None:
    task = EditDistanceLocal(2)
    sequence = task.complete("a b | c d <sep>".split())
    # first block 6 7 , b | c d <sep> is 6..13, second block 14 15 , <sep>, answer
    assert task.dependencies(sequence) == [
        [0, 3], [0, 4, 6], [], [1], [], [3], [4], [],
        [9, 11, 6], [9, 12, 14, 7, 6], [], [], [15],
    ]  # fmt: skip
    assert task.chain_steps(sequence) == [0] * 8 + [1] * 4 + [2]


def test_bad_alphabet() -> None:
    with pytest.raises(UserError, match="alphabet_size=2 must be at least 3"):
        EditDistance(6, alphabet_size=2)
    with pytest.raises(UserError, match="alphabet_size=27 must be at most 26"):
        EditDistance(6, alphabet_size=27)
