"""What a frontier search still costs, before it is known where the least D lies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from config.grid import Cell
from sweeps.cost import CostEstimate
from sweeps.least_dim import Group, Run
from sweeps.tables import duration


class Cost(NamedTuple):
    """Trainings, and the seconds that their budgets take on one worker."""

    runs: int = 0
    seconds: float = 0.0

    def plus(self, other: Cost) -> Cost:
        """Return the sum of both."""
        return Cost(self.runs + other.runs, self.seconds + other.seconds)


class Way(NamedTuple):
    """What bisecting costs, and what confirming its result does."""

    search: Cost = Cost()
    confirmation: Cost = Cost()

    @property
    def seconds(self) -> float:
        """The seconds of both."""
        return self.search.seconds + self.confirmation.seconds

    def plus(self, other: Way) -> Way:
        """Return the sum of both ways."""
        search, confirmation = (a.plus(b) for a, b in zip(self, other, strict=True))
        return Way(search, confirmation)


def bounds(group: Group, seconds: Callable[[Cell], float]) -> tuple[Way, Way]:
    """Return the cheapest and the dearest way left.

    Which it will be depends on the result at each D.  A confirmation that overturns the search
    costs more.
    """

    def ways(low: int, high: int) -> tuple[Way, Way]:
        if high - low <= 1:
            end = Way(confirmation=_cost(_confirming(group, low, high), seconds))
            return end, end
        middle = (low + high) // 2
        first = Way(search=_cost([group.widths[middle].first], seconds))
        left, right = ways(low, middle), ways(middle, high)
        cheapest = min(left[0], right[0], key=lambda way: way.seconds)
        dearest = max(left[1], right[1], key=lambda way: way.seconds)
        return first.plus(cheapest), first.plus(dearest)

    return ways(group.low, group.high)


def _confirming(group: Group, low: int, high: int) -> list[Run]:
    """Return the open runs that confirm the D at ``high``; the first of each D is the search's."""
    runs = group.widths[high].runs[0][1:] if high < len(group.widths) else []
    below = group.widths[low].every_run[1:] if low >= 0 else []
    return [run for run in (*runs, *below) if run.reaches is None]


def _cost(runs: Iterable[Run], seconds: Callable[[Cell], float]) -> Cost:
    cells = [run.cell for run in runs]
    return Cost(len(cells), sum(map(seconds, cells)))


def in_words(groups: Sequence[Group], estimate: CostEstimate) -> str:
    """Return a sentence about what is left of the groups; they share no training."""
    least, most = Way(), Way()
    for group in groups:
        cheapest, dearest = bounds(group, estimate.seconds)
        least, most = least.plus(cheapest), most.plus(dearest)
    parts = [f"the search {_words(least.search, most.search)}"] if most.search.runs else []
    if most.confirmation.runs:
        cost = _words(least.confirmation, most.confirmation)
        parts.append(f"the confirmation {cost}, unless it overturns what was found")
    if not parts:
        return "The search is at its end."
    told = "; ".join(parts)
    return f"Left on one worker, depending on what is found: {told}. Early stops end sooner."


def _words(least: Cost, most: Cost) -> str:
    """Return both in words; of the way that is cheapest altogether a part may cost more."""
    runs = sorted({least.runs, most.runs})
    times = dict.fromkeys(duration(cost) for cost in sorted([least.seconds, most.seconds]))
    trainings = "1 training" if runs == [1] else f"{' to '.join(map(str, runs))} trainings"
    return f"{trainings} ({' to '.join(times)})"
