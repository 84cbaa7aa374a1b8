"""Bits that a state must hold: counts of right continuations, against all those that are drawn."""

import pytest

from tasks.arithmetic import Arithmetic
from tasks.closure import Closure
from tasks.copying import Copying
from tasks.ed import EditDistance
from tasks.ed_local import EditDistanceLocal
from tasks.lis import LIS
from tasks.match3 import Match3
from tasks.mqar import MQAR
from tasks.task import Task
from tasks.word import Word

READ = [
    Arithmetic(1, modulus=3),
    Arithmetic(2, modulus=3),
    Arithmetic(3, modulus=2),
    Arithmetic(2, order="growth", modulus=3),
    Arithmetic(3, format="direct", modulus=3),
    LIS(4, number_range=9),
    LIS(5, format="direct", number_range=11),
    EditDistance(1, alphabet_size=3),
    EditDistance(2, alphabet_size=3),
    EditDistance(2, format="direct", alphabet_size=3),
    EditDistanceLocal(1, alphabet_size=3),
    EditDistanceLocal(2, alphabet_size=3),
    Copying(3, alphabet_size=3),
    MQAR(2, vocab_size=6),
    MQAR(3, queries=1, vocab_size=6),
    MQAR(2, format="direct", vocab_size=6),
    Match3(3),
    Word(4, monoid="S3"),
    Word(2, format="direct", monoid="S3"),
    Word(3, monoid="flip-flop"),
    Word(3, monoid="S3", question="member"),
    Closure(4, monoid="S3", r=2),
    Closure(4, monoid="S3", r=2, format="direct"),
]


@pytest.mark.parametrize("task", READ, ids=lambda task: f"{task.name}-{task.parameters}")
def test_as_many_continuations_as_are_drawn(task: Task) -> None:
    drawn = task.draw(0, 2, 0, 30_000)
    rows = zip(drawn.tokens.tolist(), drawn.prompt_lengths, drawn.lengths, strict=True)
    found = len({tuple(tokens[start:stop]) for tokens, start, stop in rows})
    bits = task.state_bits(task.size)
    if isinstance(bits, tuple):
        low, high = bits
        assert 2**low - 1e-6 <= found <= 2**high + 1e-6
    else:
        assert found == pytest.approx(2**bits)


LABELLED = [
    LIS(3, format="tagged", number_range=8),
    MQAR(2, format="tagged", vocab_size=4),
    MQAR(2, format="tagged", vocab_size=6),
    Word(3, format="tagged", monoid="S3"),
    Word(3, format="online", monoid="S3"),
    LIS(3, format="online", number_range=8),
]


@pytest.mark.parametrize("task", LABELLED, ids=lambda task: f"{task.name}-{task.parameters}")
def test_as_many_ways_to_label_as_a_state_must_tell_apart(task: Task) -> None:
    """Two prefixes may share a state unless some rest that may follow both is labelled otherwise.

    Told apart pairwise or not at all: classes of prefixes that agree on every rest in common.
    """
    drawn = task.draw(0, 2, 0, 30_000)
    most = 0
    for cut in range(2, task.max_len):
        rests: dict[tuple[int, ...], dict[tuple[int, ...], tuple[int, ...]]] = {}
        for row, labels in zip(drawn.tokens.tolist(), drawn.labels.tolist(), strict=True):
            rest = row[cut:] if task.format == "tagged" else row[cut | 1 :: 2]  # of the prompt
            rests.setdefault(tuple(row[:cut]), {})[tuple(rest)] = tuple(labels[cut + 1 :])
        apart: list[dict[tuple[int, ...], tuple[int, ...]]] = []
        for rest in rests.values():
            if all(any(rest[k] != other[k] for k in rest.keys() & other) for other in apart):
                apart.append(rest)
        most = max(most, len(apart))
    bits = task.state_bits(task.size)
    low, high = bits if isinstance(bits, tuple) else (bits, bits)
    assert 2**low - 1e-6 <= most <= 2**high + 1e-6
