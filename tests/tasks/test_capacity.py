"""One model, several sizes: sequences of a size in the ids of a larger one."""

import random
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_samplers import sample, sample_prompt
from test_task_interface import Parity

from common import UserError
from tasks.arithmetic import Arithmetic
from tasks.copying import Copying
from tasks.ed import EditDistance
from tasks.ed_local import EditDistanceLocal
from tasks.lis import LIS
from tasks.mqar import MQAR
from tasks.task import EOS, Task, build_task
from tests.oracles import arithmetic, copying, edit_distance, lis, mqar

TASKS: list[type[Task]] = [Arithmetic, LIS, EditDistance, EditDistanceLocal, MQAR, Copying]
EACH = pytest.mark.parametrize("cls", TASKS, ids=lambda cls: cls.name)


@st.composite
def tasks(draw, largest=130) -> Task:
    """Any task of these, and any of its settings that its oracle knows."""
    cls, size = draw(st.sampled_from(TASKS)), draw(st.integers(1, 12))
    format = draw(st.sampled_from(cls(1).formats))
    own = {"capacity": size + draw(st.integers(0, largest))}
    if cls is MQAR:
        own["queries"] = draw(st.integers(1, size))
    elif issubclass(cls, EditDistance):
        own["alphabet_size"] = draw(st.integers(3, 26))
    elif cls is Copying:
        own["alphabet_size"] = draw(st.integers(1, 26))
    return cls(size, format, **own)


def judged(task: Task, line: str) -> str | None:
    """The oracle's verdict; numbers of LIS and MQAR depend on the capacity."""
    if isinstance(task, LIS):
        return lis.judge(line, task.size, task.format, task.room_size)
    if isinstance(task, MQAR):
        return mqar.judge(line, task.size, task.format, task.queries, capacity=task.room_size)
    if isinstance(task, Copying):
        return copying.judge(line, task.size, alphabet_size=task.alphabet_size)
    if isinstance(task, EditDistance):
        local = isinstance(task, EditDistanceLocal)
        return edit_distance.judge(line, task.size, task.format, local)
    return arithmetic.judge(line, task.size, "leftmost", task.format)


@given(tasks(), st.integers(0, 2**62), st.integers(0, 2**40))
@settings(max_examples=300, deadline=None)
def test_kernel_and_plain_sampler_agree_with_solver_and_oracle(task, seed: int, index: int) -> None:
    drawn = task.draw(seed, 3, index, 2)
    assert drawn.tokens.shape == (2, task.max_len + 1)
    assert drawn.tokens.dtype == task.room.vocabulary.dtype
    rng = random.Random(seed)
    for example in (task.decode(drawn, 0), task.decode(drawn, 1), sample(task, rng)):
        assert example == task.complete(example.prompt)
        assert task.check(example.tokens) is None
        if not (isinstance(task, LIS) and task.labelled):
            assert judged(task, " ".join(example.tokens)) is None
        assert task.room.vocabulary.encode([*example.tokens, EOS]).max() < len(task.vocabulary)


@EACH
@pytest.mark.parametrize("format", ["cot", "direct"])
def test_room_is_the_task_of_that_size(cls, format: str) -> None:
    task, large = cls(5, format, capacity=12), cls(12, format)
    assert task.room.parameters == large.parameters
    assert task.vocabulary.tokens == large.vocabulary.tokens
    assert (task.room.max_len, task.max_len) == (large.max_len, cls(5, format).max_len)
    assert cls(5, format).room.max_len == cls(5, format).max_len
    assert task.with_parameters(size=7).vocabulary.tokens == task.vocabulary.tokens


@EACH
def test_a_capacity_of_the_size_itself_changes_no_byte(cls) -> None:
    plain, same = cls(6), cls(6, capacity=6)
    assert plain.vocabulary.tokens == same.vocabulary.tokens
    assert np.array_equal(plain.draw(3, 1, 0, 200).tokens, same.draw(3, 1, 0, 200).tokens)


@pytest.mark.parametrize("cls", [Arithmetic, EditDistance, EditDistanceLocal])
@pytest.mark.parametrize("capacity", [6, 7, 30, 120])
def test_the_same_text_as_without_capacity_where_size_changes_no_token(cls, capacity: int) -> None:
    """Their prompts do not depend on the size of the vocabulary, those of LIS do."""
    plain, task = cls(6), cls(6, capacity=capacity)
    one, two = plain.draw(3, 1, 0, 50), task.draw(3, 1, 0, 50)
    assert [plain.decode(one, row) for row in range(50)] == [
        task.decode(two, row) for row in range(50)
    ]
    rng, again = random.Random(1), random.Random(1)
    assert [sample(plain, rng) for _ in range(20)] == [sample(task, again) for _ in range(20)]


@pytest.mark.parametrize(("capacity", "end"), [(40, 250), (124, 250), (125, 251), (300, 601)])
def test_numbers_of_lis_lie_above_the_capacity(capacity: int, end: int) -> None:
    task = LIS(6, capacity=capacity)
    assert task.number_range == end
    drawn = task.draw(0, 0, 0, 3000)
    kernel = {int(token) for row in range(3000) for token in task.decode(drawn, row).prompt[:-1]}
    rng = random.Random(0)
    plain = {int(token) for _ in range(3000) for token in sample_prompt(task, rng, 6)[:-1]}
    assert (min(kernel), max(kernel)) == (min(plain), max(plain)) == (capacity + 1, end - 1)
    assert "a number above" in (task.check(["1"] * 6 + ["<sep>", "1", "<sep>", "1"]) or "")


@EACH
def test_a_model_of_one_size_reads_the_others(cls) -> None:
    trained = cls(4, capacity=10)
    for size in (2, 4, 10):
        trained.require_room_for(cls(size, capacity=10))
    with pytest.raises(UserError, match=r"task\.capacity at least as large"):
        trained.require_room_for(cls(150))
    with pytest.raises(UserError, match=r"task\.capacity at least as large"):
        cls(4).require_room_for(cls(5))


@EACH
@pytest.mark.parametrize("bad", [3, 0, 2.5, True, "4", 10**12])
def test_bad_capacity(cls, bad: object) -> None:
    with pytest.raises(UserError, match=f"task {cls.name}: capacity="):
        cls(4, capacity=bad)


class RoomyParity(Parity):
    """An outsider's task that takes a capacity: three lines."""

    name: ClassVar[str] = "roomy_parity"

    def __init__(self, size: int, format: str = "cot", ones: int = 1, capacity: int | None = None):
        Task.__init__(self, size, format, capacity)
        self.ones = ones


def test_an_outsider_s_task_needs_no_capacity_and_may_take_one() -> None:
    plain = f"{Parity.__module__}.Parity"
    assert build_task({"_target_": plain, "size": 3}).room.max_len == 9
    assert build_task({"_target_": plain, "size": 3, "capacity": None}).parameters == {
        "size": 3, "format": "cot", "ones": 1,
    }  # fmt: skip
    with pytest.raises(UserError, match="'capacity'; Parity takes size, format, ones"):
        build_task({"_target_": plain, "size": 3, "capacity": 5})
    roomy = RoomyParity(3, capacity=5)
    assert (roomy.max_len, roomy.room.max_len) == (9, 13)
    assert np.array_equal(roomy.draw(0, 0, 0, 20).tokens, Parity(3).draw(0, 0, 0, 20).tokens)
