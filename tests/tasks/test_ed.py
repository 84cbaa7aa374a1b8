import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import edit_distance

from tasks.ed import EditDistance, distances
from tasks.ed_local import EditDistanceLocal

WORDS = st.text("abc", min_size=1, max_size=6)


@given(WORDS, WORDS)
def test_table_against_the_recursive_definition(one: str, two: str) -> None:
    assert distances(list(one), list(two)) == edit_distance.rows(one, two)


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
    task, local = EditDistance(2), EditDistanceLocal(2)
    sequence = task.complete("a b | c d <sep>".split())
    # a b | c d <sep> 0..5, first row 6 7 , second row 9 10 , <sep> answer
    assert task.dependencies(sequence) == [
        [0, 3], [0, 4, 6], [], [1, 3, 6], [1, 4, 9, 7, 6], [], [], [10],
    ]  # fmt: skip
    assert task.chain_steps(sequence) == [0, 0, 0, 1, 1, 1, 2, 2]
    # first block 6 7 , b | c d <sep> is 6..13, second block 14 15 , <sep>, answer
    sequence = local.complete(sequence.prompt)
    assert local.dependencies(sequence) == [
        [0, 3], [0, 4, 6], [], [1], [], [3], [4], [],
        [9, 11, 6], [9, 12, 14, 7, 6], [], [], [15],
    ]  # fmt: skip
    assert local.chain_steps(sequence) == [0] * 8 + [1] * 4 + [2]
