"""Task settings: longest sequences, mixed training sizes, rejected values, and capacity: sequences
of one size encoded with the token ids of a larger one."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import drawn_lines, judge
from plain_samplers import sample

from common import UserError
from tasks.arithmetic import Arithmetic
from tasks.closure import Closure
from tasks.copying import Copying
from tasks.ed import EditDistance
from tasks.ed_local import EditDistanceLocal
from tasks.lis import LIS
from tasks.match3 import Match3
from tasks.mqar import MQAR
from tasks.sampling import planned_sizes
from tasks.sequences import EOS
from tasks.task import Task
from tasks.word import Word

LONGEST = {  # prompt, chain and answer; the paper states the maximum number of tokens
    Arithmetic: ((1, 2, 3, 4), lambda n: 2 * n**2 + 2 * n + 1),
    LIS: ((1, 2, 3, 40, 250), lambda n: 2 * n + 3),
    EditDistance: ((1, 2, 3, 6, 20), lambda n: n**2 + 5 * n + 6),
    # the rows of ED, and before all but the first: the rest of s1, |, s2 and <sep>
    EditDistanceLocal: (
        (1, 2, 3, 6, 20), lambda n: n**2 + 5 * n + 6 + (n - 1) * (n + 4) + n * (n - 1) // 2,
    ),
    MQAR: ((1, 2, 8), lambda n: 5 * n + 4),  # pairs, |, keys, <sep>, pairs, <sep>, value
    Copying: ((1, 2, 40), lambda n: 2 * n + 1),
    Word: ((1, 2, 12), lambda n: 2 * n + 3),
    Closure: ((12, 14), lambda n: 3 * n + 3),
}  # fmt: skip


@pytest.mark.parametrize("cls", LONGEST, ids=lambda cls: cls.name)
def test_longest_sequence_is_reached_and_never_exceeded(cls: type[Task]) -> None:
    sizes, longest = LONGEST[cls]
    for size in sizes:
        assert cls(size).max_len == longest(size)
        for format in cls(size).formats:
            task = cls(size, format)
            assert task.draw(0, 0, 0, 20_000).lengths.max() - 1 == task.max_len


MIXED = [  # training sizes and their proportions
    (Arithmetic(4), {1: 1, 2: 2, 3: 3, 4: 4}), (LIS(4), {4: 1}), (Word(4), {4: 1}),
    (Word(4, "direct"), {1: 1, 2: 2, 3: 3, 4: 4}), (Word(4, "tagged"), {4: 1}),
    (Word(4, "direct", "flip-flop"), {2: 2, 3: 3, 4: 4}), (Closure(14), {14: 1}),
    (Closure(14, "direct"), {12: 12, 13: 13, 14: 14}), (Match3(2), {2: 1}),
    (Match3(8), {k: 1 / k for k in range(3, 9)}), (Copying(5), dict.fromkeys(range(1, 6), 1)),
]  # fmt: skip


@pytest.mark.parametrize(("task", "shares"), MIXED, ids=lambda x: getattr(x, "name", ""))
def test_training_mixes_sizes_and_test_sets_have_the_largest(task, shares) -> None:
    exact = {size: share / sum(shares.values()) for size, share in shares.items()}
    assert task.training_mixture() == pytest.approx(exact)
    planned = Counter(planned_sizes(task, "train", 1000, 0).tolist())
    assert all(abs(planned[size] - 1000 * share) < 1 for size, share in exact.items())
    assert set(planned_sizes(task, "test", 10, 0).tolist()) == {task.size}


# The last setting of each is refused, also in combination with those before it.
BAD = [
    (Arithmetic, {"size": True}), (Arithmetic, {"order": "right"}), (Arithmetic, {"modulus": 9}),
    (LIS, {"number_range": 65535}),
    *((LIS, {"capacity": bad}) for bad in (7, 0, 8.5, True, "8", 10**12)),
    (EditDistance, {"alphabet_size": 2}), (EditDistance, {"alphabet_size": 27}),
    (Copying, {"alphabet_size": 27}), (MQAR, {"vocab_size": 15}), (MQAR, {"queries": 9}),
    (Match3, {"size": 1}), *((Match3, {"modulus": bad}) for bad in (15, 18, 10**6 + 1)),
    (Match3, {"format": "cot"}), (Word, {"monoid": "Q8"}), (Word, {"monoid": "Z1"}),
    (Word, {"letters": ["12345", "23145"]}),  # they generate a proper subgroup
    (Word, {"letters": [12345, 54321, 99999]}), (Word, {"letters": "some"}),
    (Word, {"format": "tagged", "question": "member"}), (Word, {"tail": "omega"}),
    (Word, {"tail": "omega", "question": "member", "size": 4}),
    (Word, {"monoid": "flip-flop", "letters": ["a", "b"]}),
    (Word, {"monoid": "flip-flop", "size": 1}), (Closure, {"monoid": "flip-flop"}),
    (Closure, {"r": 0}), (Closure, {"r": 10}),
    (Closure, {"r": 2, "subset": [12345, 23451]}), (Closure, {"r": 2, "subset": 12345}),
    (Closure, {"r": 2, "monoid": "Z5", "subset": [0, 1, 2, 3, 4]}),
]  # fmt: skip


@pytest.mark.parametrize(("cls", "own"), BAD)
def test_bad_settings_are_named_in_one_line(cls, own) -> None:
    with pytest.raises(UserError, match=rf"\b{next(reversed(own))}\b") as raised:
        cls(**{"size": 8, **own})
    assert len(str(raised.value).splitlines()) == 1


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
        ids = task.at_capacity.vocabulary.encode([*example.tokens, EOS])
        assert ids.max() < len(task.vocabulary)


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
