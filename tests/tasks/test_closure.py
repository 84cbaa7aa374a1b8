import itertools

import numpy as np
import pytest
from oracles import drawn_lines
from oracles.words import judge_closure
from two_samples import deviation

from tasks.closure import Closure, draw_visits
from tasks.monoids import monoid_of

KINDS = Closure.kind_names

GROUPS = {"A5": 14, "S5": 14, "Z5": 14, "Z60": 14, "A4xZ5": 14, "S3": 10, "A4": 12}


@pytest.mark.parametrize("format", ["cot", "direct"])
@pytest.mark.parametrize(("name", "size"), GROUPS.items())
def test_lines_match_the_definition(name, size, format):
    task, group = Closure(size, format, name), monoid_of(name)
    subset = {group.elements[i] for i in group.subgroup}
    for line in drawn_lines(task, 20):
        assert judge_closure(line, name, subset, task.r, format) is None, line
        assert task.check(line.split()) is None


def test_kinds_worked_by_hand():
    task = Closure(5, monoid="S3", r=2, subset=["123", "132"])
    for word, answer, kind in (
        ("213 312 123 213 312", "yes", "yes"),
        ("213 213 213 213 123", "yes", "yes"),
        ("213 312 123 213 123", "no", "ends outside F"),
        ("213 123 123 213 123", "no", "gap too long"),
    ):
        sequence = task.complete([*word.split(), "<sep>"])
        (found,) = task.kinds(task.encode([sequence]))
        assert (sequence.answer, task.kind_names[found]) == ([answer], kind)


def test_visits_match_uniform_words_of_each_kind():
    """Compared with all 2^8 visit patterns, weighted as independent visits of probability 1 / 3."""
    index, r, size = 3, 3, 8
    drawn = draw_visits(index, r, np.random.default_rng(0).random((40_000, size + 1)))
    weights: dict[str, dict[tuple[bool, ...], float]] = {kind: {} for kind in KINDS}
    for visits in itertools.product([False, True], repeat=size):
        kind = kind_of(visits, r)
        if kind is not None:
            count = sum(visits)
            weights[kind][visits] = (1 / 3) ** count * (2 / 3) ** (size - count)
    expected = []
    for kind, share in zip(KINDS, (0.5, 0.25, 0.25), strict=True):
        total = sum(weights[kind].values())
        for visits, weight in weights[kind].items():
            expected += [visits] * round(400_000 * share * weight / total)
    assert deviation(map(tuple, drawn.tolist()), expected) < 3.5


def kind_of(visits: tuple[bool, ...], r: int) -> str | None:
    """Kind of a visit pattern; None if it is never drawn."""
    times = [0, *(i for i, visit in enumerate(visits, start=1) if visit)]
    gaps = [b - a for a, b in itertools.pairwise(times)]
    open_gap = len(visits) - times[-1]
    if all(gap <= r for gap in gaps):
        return KINDS[0] if open_gap == 0 else (KINDS[1] if open_gap <= r else None)
    long = [gap for gap in gaps if gap > r]
    return KINDS[2] if open_gap == 0 and len(long) == 1 and long[0] <= 2 * r else None
