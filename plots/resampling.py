"""Where the least D would lie had other seeds been drawn: the bootstrap, summed exactly.

The seeds of each D are resampled with replacement.  A D reaches the threshold where the median of
its resampled seeds does at any of its rates; for n seeds of which k reach it that has the
probability of more than half of n draws hitting the k, a binomial sum, so nothing is left to
chance.  One seed resamples to itself: its spread is then not in the interval, and figures say so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from plots.budgets import UNKNOWN, YES
from plots.cells import Grid
from plots.confirmed import group_of
from plots.fit import Growth, growth_of_outcomes
from plots.frontier import Requirement, requirements_of

FEWEST_SEEDS = 3
METHOD = (
    "Exponent b of D ~ L^b, by interval-censored maximum likelihood (log-logistic): the least D "
    "lies between the largest D that fails and the least that does not. The interval is that of "
    "the profile likelihood, averaged over what resampled seeds would have found where three or "
    "more were measured."
)


def growth_of(
    grid: Grid, column: str, row: str, items: list[Requirement] | None = None
) -> Growth | None:
    """Return the fitted growth of the least D of one task and model; None of too few points."""
    items = requirements_of(grid, column, row) if items is None else items
    known = [i for i in items if i.measured and not np.isnan(i.max_len)]
    panel = grid.panel(column, row)
    likely = [outcomes(item, panel, grid.trials) for item in known]
    return growth_of_outcomes([item.max_len for item in known], likely)


def outcomes(
    item: Requirement, panel: pd.DataFrame, trials: pd.DataFrame
) -> list[tuple[float, float, float]]:
    """Return (lower end, upper end, probability) of the intervals of D, the one found first.

    Without three seeds at the edge, the interval found alone.
    """
    found = (float(item.below or 0), float(item.dim or math.inf))
    if item.seeds < FEWEST_SEEDS:
        return [(*found, 1.0)]
    chances = reaching_chances(panel[panel["size"] == item.size], trials)
    likely = [(*ends, chance) for ends, chance in intervals(chances).items()]
    likely = [entry for entry in likely if entry[2] > 1e-3]
    likely.sort(key=lambda entry: (entry[:2] != found, -entry[2]))
    # The mean of a grid's seeds may put the least D where no resampled median does.
    return likely if likely and likely[0][:2] == found else [(*found, 1.0)]


def reaching_chances(cells: pd.DataFrame, trials: pd.DataFrame) -> dict[int, float]:
    """Return per measured D the probability that it reaches the threshold with resampled seeds."""
    group = group_of(cells, trials)
    chances = {}
    for width in group.widths if group is not None else []:
        rates = [[run.reaches for run in seeds if run.reaches is not None] for seeds in width.runs]
        misses = [1 - resampled_median_reaches(seeds) for seeds in rates if seeds]
        if misses:
            chances[width.dim] = 1 - math.prod(misses)
    return chances


def resampled_median_reaches(reaches: Sequence[bool]) -> float:
    """Return the probability that the (lower) median of as many draws from these seeds reaches."""
    n, share = len(reaches), sum(reaches) / len(reaches)
    return sum(
        math.comb(n, hits) * share**hits * (1 - share) ** (n - hits)
        for hits in range(n // 2 + 1, n + 1)
    )


def intervals(chances: Mapping[int, float]) -> dict[tuple[float, float], float]:
    """Return the probability of each interval (largest D that misses, least D that reaches]."""
    found: dict[tuple[float, float], float] = {}
    left, below = 1.0, 0.0
    for dim, chance in sorted(chances.items()):
        found[below, float(dim)] = left * chance
        left, below = left * (1 - chance), float(dim)
    found[below, math.inf] = left
    return found


def doubts(items: list[Requirement], limits: list[str]) -> list[str]:
    """Return why no verdict can rest on these least D; empty where one can."""
    told = []
    counts = {YES: "limited by the budget", UNKNOWN: "that the budget may limit"}
    for limit, words in counts.items():
        if number := limits.count(limit):
            told.append(f"{number} of {len(limits)} sizes {words}")
    if number := sum(item.measured and item.dim is None for item in items):
        told.append(f"{number} of {len(items)} sizes that no D measured reaches")
    few = sum(item.seeds < FEWEST_SEEDS for item in items)
    if few:
        told.append(f"{few} of {len(items)} sizes with fewer than {FEWEST_SEEDS} seeds")
    return told
