"""What the runs of one group of cells say about the least D that reaches 90 % answer accuracy.

A D reaches the threshold when the median of its seeds does at the best of its learning rates.
Nothing here looks at a disk or launches anything; see `sweeps.frontier`.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from config.grid import Cell
from sweeps.plan import Planned

THRESHOLD = 0.9
SEEDS = 3
RATE_FACTORS = (1.0, 0.5, 2.0)
DIVERGED = "training diverged"  # as `training.trainer` says it


@dataclass(frozen=True)
class Run:
    """One cell, with its answer accuracy; None where not measured.

    A run that ``diverged`` has no accuracy and counts as one that misses the threshold; one that
    ``failed`` otherwise is not known.  ``planned`` is None for a run that only a table tells of.
    """

    planned: Planned | None
    accuracy: float | None = None
    diverged: bool = False
    dim: int = 0
    seed: int = 0
    rate: float = 0.0
    failed: bool = False

    @property
    def reaches(self) -> bool | None:
        """Whether it reaches the threshold; None when not known."""
        if self.diverged:
            return False
        return None if self.accuracy is None else self.accuracy >= THRESHOLD

    @property
    def cell(self) -> Cell:
        """The cell, of a run that a sweep has planned."""
        if self.planned is None:
            raise ValueError(f"D={self.dim} seed={self.seed}: known from a table alone")
        return self.planned.cell


@dataclass(frozen=True)
class Width:
    """One D: at every learning rate a run for every seed.

    ``runs[0]`` has the experiment's own rate and ``runs[0][0]`` is the run that the bisection
    looks at.
    """

    runs: list[list[Run]]

    @property
    def first(self) -> Run:
        """The run that the bisection looks at."""
        return self.runs[0][0]

    @property
    def every_run(self) -> list[Run]:
        """The runs of all rates."""
        return [run for seeds in self.runs for run in seeds]

    @property
    def dim(self) -> int:
        """D."""
        return self.first.dim

    @property
    def reaches(self) -> bool | None:
        """Whether the median seed reaches the threshold at the best rate, as far as known.

        Other rates count once their median is known, other seeds once the median at the
        experiment's own rate is; until then the first run decides.
        """
        known = [median_reaches(seeds) for seeds in self.runs]
        if any(known):
            return True
        return self.first.reaches if known[0] is None else False

    @property
    def confirming(self) -> bool:
        """Whether another seed or rate than the first run's is known."""
        return any(run.reaches is not None for run in self.every_run[1:])

    @property
    def best(self) -> list[Run]:
        """The measured runs of the rate whose median is highest; the earlier one of equals.

        Rates whose median is known come first: one lucky run of three is no rate's median.
        """
        decided = [seeds for seeds in self.runs if median_reaches(seeds) is not None]
        known = [
            [run for run in seeds if run.reaches is not None] for seeds in decided or self.runs
        ]
        return max(known, key=lambda seeds: _share(median(seeds)) if seeds else -2.0)

    def lacking_to_reach(self) -> list[Run]:
        """Return the runs to measure before it is said that D reaches the threshold.

        All seeds at the experiment's own rate, and at another whose median does; one that failed
        is not missed where a median is known without it.
        """
        proof = [seeds for seeds in self.runs if median_reaches(seeds)]
        wanted = proof if self.runs[0] in proof else [self.runs[0], *proof]
        return [run for seeds in wanted for run in _open(seeds, without_failed=bool(proof))]

    def lacking_to_miss(self) -> list[Run]:
        """Return the runs to measure before it is said that D misses it: all seeds at all rates."""
        return [
            run
            for seeds in self.runs
            for run in _open(seeds, without_failed=median_reaches(seeds) is not None)
        ]


@dataclass(frozen=True)
class Group:
    """Cells that differ in D, narrowest first, and in the seeds and rates that confirm a D."""

    widths: list[Width]

    @property
    def dims(self) -> list[int]:
        """Every D, ascending."""
        return [width.dim for width in self.widths]

    @property
    def high(self) -> int:
        """The index of the least D known to reach the threshold; the number of Ds if none is."""
        reaching = [i for i, width in enumerate(self.widths) if width.reaches]
        return min(reaching, default=len(self.widths))

    @property
    def low(self) -> int:
        """The index of the largest D below ``high`` that is known not to; -1 if none is."""
        below = self.widths[: self.high]
        return max((i for i, w in enumerate(below) if w.reaches is not None), default=-1)

    @property
    def edge(self) -> list[Width]:
        """The largest D below that misses and the least that reaches, where there are such."""
        return [self.widths[i] for i in (self.low, self.high) if 0 <= i < len(self.widths)]

    def wanted(self) -> list[Run]:
        """Return the runs to measure next; none when the least D stands.

        First the D half-way.  When nothing lies between, all seeds at the D found, and all seeds
        and rates at the one below it.  When these overturn the search, one step down or up.
        """
        low, high, widths = self.low, self.high, self.widths
        if high - low == 1:
            found = widths[high].lacking_to_reach() if high < len(widths) else []
            return found + (widths[low].lacking_to_miss() if low >= 0 else [])
        if low >= 0 and widths[low].confirming:
            return widths[low + 1].lacking_to_reach()
        if high < len(widths) and widths[high].confirming:
            return widths[high - 1].lacking_to_miss()
        return [widths[(low + high) // 2].first]

    @property
    def solved(self) -> bool:
        """Whether the least D stands, or stands to be beyond the last."""
        return not self.wanted()

    @property
    def least_dim(self) -> int | None:
        """The least D that reaches the threshold; None when not known, or when none does."""
        return self.dims[self.high] if self.solved and self.high < len(self.widths) else None

    @property
    def interval(self) -> tuple[int | None, int | None]:
        """The lowest and the highest least D that single seeds and rates admit.

        The lowest is the least D that any run reaches the threshold with.  From the highest on no
        seed is known to miss it at the D's best rate; None: wider than all, or not known.
        """
        if not self.solved:
            return None, None
        by_index = list(enumerate(self.widths))
        reached = [i for i, width in by_index if any(run.reaches for run in width.every_run)]
        missed = [i for i, width in by_index if any(run.reaches is False for run in width.best)]
        lowest, highest = min(reached, default=None), max(missed, default=-1) + 1
        return (
            None if lowest is None else self.dims[lowest],
            self.dims[highest] if highest < len(self.widths) else None,
        )

    @property
    def monotone(self) -> bool:
        """Whether no wider D is known to miss what a narrower one reaches."""
        return all(width.reaches is not False for width in self.widths[self.high :])

    def verdicts(self) -> list[tuple[str, bool | None]]:
        """Return, D by D, (measured, inferred or unknown; whether it reaches)."""
        found: list[tuple[str, bool | None]] = []
        for index, width in enumerate(self.widths):
            if width.reaches is not None:
                found.append(("measured", width.reaches))
            elif self.low < index < self.high:
                found.append(("unknown", None))
            else:
                found.append(("inferred", index >= self.high))
        return found

    def outcome(self) -> str:
        """Return in words what is known of the least D."""
        if wanted := self.wanted():
            run = wanted[0]
            status, reason = (
                (run.planned.status, run.planned.reason) if run.planned else ("missing", None)
            )
            return f"open: {self._words(run)} is {status}{f' ({reason})' if reason else ''}"
        last = self.dims[-1]
        known = f"least D {self.least_dim}" if self.least_dim else f"more than D {last}"
        lowest, highest = self.interval
        if lowest is not None and (lowest, highest) != (self.least_dim, self.least_dim):
            known += f" (single seeds and rates: {lowest} to {highest or f'more than {last}'})"
        return known if self.monotone else f"{known}; not monotone, a wider one falls short"

    def _words(self, run: Run) -> str:
        first = next(width.first for width in self.widths if width.dim == run.dim)
        seed = f" seed={run.seed}" if run.seed != first.seed else ""
        rate = f" rate={run.rate!r}" if run.rate != first.rate else ""
        return f"D={run.dim}{seed}{rate}"


def confirming_seeds(seeds: Sequence[int]) -> list[int]:
    """Return the grid's seeds and further ones until there are enough to confirm a D."""
    further = (seed for seed in itertools.count() if seed not in seeds)
    return [*seeds, *itertools.islice(further, max(0, SEEDS - len(seeds)))]


def median_reaches(seeds: list[Run]) -> bool | None:
    """Return whether the median seed reaches the threshold; None when the unknown ones decide.

    Of an even number of seeds the median is the lower one of the two in the middle.
    """
    needed = len(seeds) // 2 + 1
    if sum(run.reaches is True for run in seeds) >= needed:
        return True
    return False if sum(run.reaches is False for run in seeds) > len(seeds) - needed else None


def median(seeds: Iterable[Run]) -> float | None:
    """Return the median accuracy of measured runs; None where that run diverged."""
    share = statistics.median_low(_share(run.accuracy) for run in seeds)
    return None if share < 0 else share


def _open(seeds: Iterable[Run], *, without_failed: bool) -> list[Run]:
    open_runs = [run for run in seeds if run.reaches is None]
    return [run for run in open_runs if not (without_failed and run.failed)]


def _share(accuracy: float | None) -> float:
    """Return a number to order accuracies by; what diverged is below all."""
    return -1.0 if accuracy is None else accuracy
