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
