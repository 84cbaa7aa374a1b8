"""What a frontier search still costs at most, before it is known where the least D lies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from config.grid import Cell
from sweeps.cost import CostEstimate
from sweeps.least_dim import Group, Run
from sweeps.tables import duration


class Cost(NamedTuple):
    """Trainings, and the seconds they take at most on one worker."""

    runs: int = 0
    seconds: float = 0.0

    def plus(self, other: Cost) -> Cost:
        """Return the sum of both."""
        return Cost(self.runs + other.runs, self.seconds + other.seconds)


def at_most(group: Group, seconds: Callable[[Cell], float]) -> tuple[Cost, Cost]:
    """Return what bisecting and what confirming its result cost on the dearest way left.

    That is the way whose outcomes, D by D, make the sum of both largest.  A confirmation that
    overturns the search costs more.
    """

    def dearest(low: int, high: int) -> tuple[Cost, Cost]:
        if high - low <= 1:
            return Cost(), _cost(_confirming(group, low, high), seconds)
        middle = (low + high) // 2
        ways = (dearest(low, middle), dearest(middle, high))
        search, confirmation = max(ways, key=lambda way: way[0].seconds + way[1].seconds)
        return search.plus(_cost([group.widths[middle].first], seconds)), confirmation

    return dearest(group.low, group.high)


def _confirming(group: Group, low: int, high: int) -> list[Run]:
    """Return the open runs that confirm the D at ``high``; the first of each D is the search's."""
    runs = group.widths[high].runs[0][1:] if high < len(group.widths) else []
    below = group.widths[low].every_run[1:] if low >= 0 else []
    return [run for run in (*runs, *below) if run.reaches is None]


def _cost(runs: Iterable[Run], seconds: Callable[[Cell], float]) -> Cost:
    cells = [run.cell for run in runs]
    return Cost(len(cells), sum(map(seconds, cells)))


def in_words(groups: Sequence[Group], estimate: CostEstimate) -> str:
    """Return a sentence about what the groups cost at most; they share no training."""
    search, confirmation = Cost(), Cost()
    for group in groups:
        own = at_most(group, estimate.seconds)
        search, confirmation = search.plus(own[0]), confirmation.plus(own[1])
    parts = [f"the search {_words(search)}"] if search.runs else []
    if confirmation.runs:
        parts.append(f"the confirmation {_words(confirmation)}, unless it overturns what was found")
    if not parts:
        return "The search is at its end."
    return f"Left at most, on one worker: {'; '.join(parts)}. Early stops end sooner."


def _words(cost: Cost) -> str:
    trainings = "1 training" if cost.runs == 1 else f"{cost.runs} trainings"
    return f"{trainings} ({duration(cost.seconds)})"
