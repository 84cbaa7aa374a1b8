import pytest

from tasks.ed import EditDistance, distances
from tasks.ed_local import EditDistanceLocal


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
