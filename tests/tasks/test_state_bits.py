"""Bits that a state must hold, compared with the number of distinct continuations drawn."""

import numpy as np
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
    *(Arithmetic(size, modulus=3) for size in (1, 2)), Arithmetic(3, modulus=2),
    Arithmetic(2, order="growth", modulus=3), Arithmetic(3, format="direct", modulus=3),
    LIS(4, number_range=9), LIS(5, format="direct", number_range=11),
    *(EditDistance(size, alphabet_size=3) for size in (1, 2)),
    EditDistance(2, format="direct", alphabet_size=3),
    *(EditDistanceLocal(size, alphabet_size=3) for size in (1, 2)), Copying(3, alphabet_size=3),
    MQAR(2, vocab_size=6), MQAR(3, queries=1, vocab_size=6), MQAR(2, "direct", vocab_size=6),
    Match3(3), Word(4, monoid="S3"), Word(2, format="direct", monoid="S3"),
    Word(3, monoid="flip-flop"), Word(3, monoid="S3", question="member"),
    Closure(4, monoid="S3", r=2), Closure(4, monoid="S3", r=2, format="direct"),
]  # fmt: skip


@pytest.mark.parametrize("task", READ, ids=lambda task: f"{task.name}-{task.parameters}")
def test_state_bits_match_the_number_of_continuations(task: Task) -> None:
    drawn = task.draw(0, 2, 0, 30_000)
    rows = zip(drawn.tokens.tolist(), drawn.prompt_lengths, drawn.lengths, strict=True)
    found = len({tuple(tokens[start:stop]) for tokens, start, stop in rows})
    low, high = np.broadcast_to(task.state_bits(), 2)
    assert 2**low - 1e-6 <= found <= 2**high + 1e-6


LABELLED = [
    *(LIS(3, format, number_range=8) for format in ("tagged", "online")),
    *(Word(3, format, monoid="S3") for format in ("tagged", "online")),
    *(MQAR(2, format="tagged", vocab_size=size) for size in (4, 6)),
]


@pytest.mark.parametrize("task", LABELLED, ids=lambda task: f"{task.name}-{task.parameters}")
def test_state_bits_match_the_number_of_distinguishable_prefixes(task: Task) -> None:
    """Two prefixes may share a state unless a common continuation is labelled differently.

    Prefixes are grouped into classes that agree on all common continuations.
    """
    drawn = task.draw(0, 2, 0, 30_000)
    both = zip(map(tuple, drawn.tokens.tolist()), map(tuple, drawn.labels.tolist()), strict=True)
    different, most = dict.fromkeys(both), 0
    for cut in range(2, task.max_len):
        rests: dict[tuple[int, ...], dict[tuple[int, ...], tuple[int, ...]]] = {}
        for row, labels in different:
            rest = row[cut:] if task.format == "tagged" else row[cut | 1 :: 2]  # prompt tokens
            rests.setdefault(row[:cut], {})[rest] = labels[cut + 1 :]
        apart: list[dict[tuple[int, ...], tuple[int, ...]]] = []
        for rest in rests.values():
            if all(any(rest[k] != other[k] for k in rest.keys() & other) for other in apart):
                apart.append(rest)
        most = max(most, len(apart))
    low, high = np.broadcast_to(task.state_bits(), 2)
    assert 2**low - 1e-6 <= most <= 2**high + 1e-6
