"""Capacity: sequences of one size encoded with the token ids of a larger one."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import drawn_lines, judge
from plain_samplers import sample

from common import UserError
from tasks.arithmetic import Arithmetic
from tasks.copying import Copying
from tasks.ed import EditDistance
from tasks.ed_local import EditDistanceLocal
from tasks.lis import LIS
from tasks.mqar import MQAR
from tasks.sequences import EOS
from tasks.task import Task

TASKS: list[type[Task]] = [Arithmetic, LIS, EditDistance, EditDistanceLocal, MQAR, Copying]
EACH = pytest.mark.parametrize("cls", TASKS, ids=lambda cls: cls.name)


@st.composite
def tasks(draw, largest=130) -> Task:
    cls, size = draw(st.sampled_from(TASKS)), draw(st.integers(1, 12))
    format = draw(st.sampled_from(cls(1).formats))
    own = {"capacity": size + draw(st.integers(0, largest))}
    if cls is Arithmetic:
        own["order"] = draw(st.sampled_from(["leftmost", "growth"]))
        own["modulus"] = draw(st.sampled_from([2, 3, 5, 11, 97, 257]))
    elif cls is MQAR:
        own["queries"] = draw(st.integers(1, size))
    elif issubclass(cls, EditDistance):
        own["alphabet_size"] = draw(st.integers(3, 26))
    elif cls is Copying:
        own["alphabet_size"] = draw(st.integers(1, 26))
    return cls(size, format, **own)


@given(tasks(), st.integers(0, 2**62), st.integers(0, 2**40))
@settings(max_examples=150)
def test_kernel_and_plain_sampler_agree_with_solver_and_oracle(task, seed: int, index: int) -> None:
    drawn = task.draw(seed, 3, index, 2)
    assert drawn.tokens.shape == (2, task.max_len + 1)
    assert drawn.tokens.dtype == task.at_capacity.vocabulary.dtype
    rng = random.Random(seed)
    for example in (task.decode(drawn, 0), task.decode(drawn, 1), sample(task, rng)):
        complete = task.complete(example.prompt)
        assert example == complete or task.parameters.get("order") == "growth"
        assert example.answer == complete.answer
        assert task.check(example.tokens) is None
        if not (isinstance(task, LIS) and task.labelled) and getattr(task, "modulus", 11) == 11:
            assert judge(" ".join(example.tokens), task.name, **task.parameters) is None
        assert task.at_capacity.vocabulary.encode([*example.tokens, EOS]).max() < len(
            task.vocabulary
        )


@EACH
@pytest.mark.parametrize("format", ["cot", "direct"])
def test_at_capacity_is_the_task_of_that_size(cls, format: str) -> None:
    task, large = cls(5, format, capacity=12), cls(12, format)
    assert task.at_capacity.parameters == large.parameters
    assert task.vocabulary.tokens == large.vocabulary.tokens
    assert (task.at_capacity.max_len, task.max_len) == (large.max_len, cls(5, format).max_len)
    assert cls(5, format).at_capacity.max_len == cls(5, format).max_len
    assert task.with_parameters(size=7).vocabulary.tokens == task.vocabulary.tokens


OF_ANY_SIZE = [Arithmetic, EditDistance, EditDistanceLocal]  # prompt tokens do not depend on it


@pytest.mark.parametrize(
    ("cls", "capacity"),
    [*((cls, 6) for cls in TASKS), *((cls, room) for cls in OF_ANY_SIZE for room in (7, 30, 120))],
)
def test_capacity_does_not_change_text_if_prompt_tokens_are_the_same(cls, capacity) -> None:
    plain, task = cls(6), cls(6, capacity=capacity)
    assert drawn_lines(plain, 100) == drawn_lines(task, 100)
    if capacity == 6:
        assert plain.vocabulary.tokens == task.vocabulary.tokens


@EACH
def test_model_accepts_sizes_up_to_its_capacity(cls) -> None:
    trained = cls(4, capacity=10)
    for size in (2, 4, 10):
        trained.require_room_for(cls(size, capacity=10))
    for model, measured in ((trained, cls(150)), (cls(4), cls(5))):
        with pytest.raises(UserError, match=r"task\.capacity at least the largest size"):
            model.require_room_for(measured)
