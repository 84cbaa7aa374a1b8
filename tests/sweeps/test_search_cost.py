"""What a frontier search costs at least and at most, against every way that it can go."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps.least_dim import RATE_FACTORS, Group, Run, Width
from sweeps.search_cost import Cost, bounds, in_words


class MadeUpRun(Run):
    """A run whose "cell" is its D, seed and rate."""

    @property
    def cell(self):
        return self.dim, self.seed, self.rate


def group(known, seeds=3, factors=RATE_FACTORS):
    """Return a group of as many D as ``known`` has; None where the first run is not measured."""
    widths = []
    for index, accuracy in enumerate(known):
        runs = [
            [MadeUpRun(None, None, dim=index, seed=seed, rate=factor) for seed in range(seeds)]
            for factor in factors
        ]
        runs[0][0] = replace(runs[0][0], accuracy=accuracy)
        widths.append(Width(runs))
    return Group(widths)


def seconds(cell):
    """Wide models are dear, and so is the half rate; all sums are of their own."""
    dim, seed, rate = cell
    return 10.0**dim * (1 + 0.1 * seed + rate)


def played(start, reaching):
    """Measure what the group wants, every D reaching from index ``reaching`` on; return the cost.

    The first run of a D is the search's, every other the confirmation's.
    """
    found = {}
    current = start
    while wanted := current.wanted():
        for run in wanted:
            found[run.cell] = 1.0 if run.dim >= reaching else 0.0
        current = Group([
            Width([
                [replace(run, accuracy=found.get(run.cell, run.accuracy)) for run in runs]
                for runs in width.runs
            ])
            for width in start.widths
        ])  # fmt: skip
    first = [cell for cell in found if cell[1:] == (0, 1.0)]
    rest = [cell for cell in found if cell[1:] != (0, 1.0)]
    return tuple(Cost(len(c), sum(map(seconds, c))) for c in (first, rest))


@settings(deadline=None, max_examples=60)
@given(
    length=st.integers(1, 7),
    low=st.integers(-1, 6),
    high=st.integers(0, 7),
    seeds=st.sampled_from([1, 3]),
    factors=st.sampled_from([(1.0,), RATE_FACTORS]),
)
def test_the_cheapest_and_the_dearest_way_are_found(length, low, high, seeds, factors):
    known = [None] * length
    if 0 <= low < length:
        known[low] = 0.0
    if low < high < length:
        known[high] = 1.0
    start = group(known, seeds, factors)
    last = start.high
    ways = [played(start, reaching) for reaching in range(start.low + 1, last + 1)]
    for choose, found in zip((min, max), bounds(start, seconds), strict=True):
        way = choose(ways, key=lambda way: way[0].seconds + way[1].seconds)
        assert [cost.runs for cost in found] == [cost.runs for cost in way]
        assert [cost.seconds for cost in found] == pytest.approx([c.seconds for c in way])


def test_what_is_left_is_told_in_words():
    class Estimate:
        seconds = staticmethod(lambda cell: 60.0)

    text = in_words([group([None, None, None]), group([0.0, 1.0, None])], Estimate)
    # Three D take two runs, then two more seeds above and eight runs below; these eight surely in
    # the second group only, as in the first the smallest D may reach.
    assert "the search 2 trainings (2 min)" in text
    assert "the confirmation 12 to 20 trainings" in text
    wider = in_words([group([None] * 4, seeds=1, factors=(1.0,))], Estimate)
    assert "the search 2 to 3 trainings (2 min to 3 min)" in wider
    alone = in_words([group([None], seeds=1, factors=(1.0,))], Estimate)
    assert "1 training (60 s)" in alone and "confirmation" not in alone
    done = [replace(run, accuracy=1.0) for run in itertools.chain(*group([1.0]).widths[0].runs)]
    assert in_words([Group([Width([done])])], Estimate) == "The search is at its end."
