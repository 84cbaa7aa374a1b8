"""The growth of the least D of one task and model with the sequence length."""

from __future__ import annotations

import numpy as np

from plots.cells import Grid
from plots.fit import Growth, growth_of_outcomes
from plots.frontier import Requirement, requirements_of
from plots.resampling import outcomes

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
    known = [i for i in items if i.state != "not run" and not np.isnan(i.max_len)]
    panel = grid.panel(column, row)
    likely = [outcomes(item, panel, grid.trials) for item in known]
    return growth_of_outcomes([item.max_len for item in known], likely)
