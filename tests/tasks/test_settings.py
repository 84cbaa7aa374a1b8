"""Task settings: maximum lengths, mixed training sizes and rejected values."""

from collections import Counter

import pytest

from common import UserError
from tasks.arithmetic import Arithmetic
from tasks.closure import Closure
from tasks.copying import Copying
from tasks.ed import EditDistance
from tasks.ed_local import EditDistanceLocal
from tasks.generate import planned_sizes
from tasks.lis import LIS
from tasks.match3 import Match3
from tasks.mqar import MQAR
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


BAD = [
    (Arithmetic, {"size": True}, "size=True"),
    (Arithmetic, {"order": "right"}, "order='right'"),
    (Arithmetic, {"modulus": 9}, "modulus=9"),
    (LIS, {"number_range": 65535}, "number_range=65535 must be at most 65,534"),
    *((LIS, {"capacity": bad}, "task lis: capacity=") for bad in (7, 0, 8.5, True, "8", 10**12)),
    (EditDistance, {"alphabet_size": 2}, "alphabet_size=2 must be at least 3"),
    (EditDistance, {"alphabet_size": 27}, "alphabet_size=27 must be at most 26"),
    (Copying, {"alphabet_size": 27}, "alphabet_size=27 must be at most 26"),
    (MQAR, {"vocab_size": 15}, "vocab_size=15 must be at least 16"),
    (MQAR, {"queries": 9}, "queries=9 must be at most 8"),
    (Match3, {"size": 1}, "size=1 must be at least 2"),
    (Match3, {"modulus": 15}, "modulus=15 must be at least 17"),
    (Match3, {"modulus": 18}, "modulus=18 must be odd"),
    (Match3, {"modulus": 10**6 + 1}, "must be at most"),
    (Match3, {"format": "cot"}, "format='cot' must be one of direct"),
    (Word, {"monoid": "Q8"}, "monoid='Q8' is unknown: there are S3"),
    (Word, {"monoid": "Z1"}, "monoid='Z1' is unknown: there are S3"),
    (Word, {"letters": ["12345", "23145"]}, "letters=12345,23145 do not generate A5: they reach 3"),
    (Word, {"letters": [12345, 54321, 99999]}, "letters: 99999 is not an element of A5"),
    (Word, {"letters": "some"}, "letters='some' must be three, all, or a list"),
    (Word, {"format": "tagged", "question": "member"}, "needs question=value"),
    (Word, {"tail": "omega"}, "tail=omega needs question=member"),
    (Word, {"tail": "omega", "question": "member", "size": 4}, "size=4 must be at least 5"),
    (Word, {"monoid": "flip-flop", "size": 1}, "size=1 must be at least 2"),
    (Word, {"monoid": "flip-flop", "letters": ["a", "b"]}, "must be all three: 1, a, b"),
    (Closure, {"monoid": "flip-flop"}, "monoid=flip-flop is not a group"),
    (Closure, {"r": 0}, "r=0 must be at least 1"),
    (Closure, {"r": 10}, "size=8 must be at least r + 2 = 12"),
    (Closure, {"r": 2, "subset": [12345, 23451]}, "subset=12345,23451 is not a subgroup of A5"),
    (Closure, {"r": 2, "subset": 12345}, "subset=12345 must be a list of elements"),
    (Closure, {"r": 2, "monoid": "Z5", "subset": [0, 1, 2, 3, 4]}, "subset is all of Z5"),
]  # fmt: skip


@pytest.mark.parametrize(("cls", "settings", "said"), BAD)
def test_bad_settings_raise_a_one_line_error(cls, settings, said) -> None:
    with pytest.raises(UserError) as raised:
        cls(**{"size": 8, **settings})
    assert said in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1
