"""The least embedding dimension that reaches 90 %, and how surely it is known."""

from __future__ import annotations

import dataclasses
import statistics
from dataclasses import dataclass

import numpy as np
import pandas as pd

from plots.cells import Grid
from plots.confirmed import at_tried_rates, group_of
from plots.paper import THRESHOLD
from sweeps.least_dim import Group, Run

UNMEASURED = ("no result", "not run")


@dataclass(frozen=True)
class Requirement:
    """What the cells of one size say about the least D for an answer accuracy of 90 %.

    ``dim`` is the least measured D that reaches the threshold (None: none does), ``below`` the
    largest measured D under it that does not: the requirement lies in (below, dim].  A D reaches
    it where the mean over its ``seeds`` does; where a search has measured further seeds or rates
    (``searched``), where its median seed at its best rate does, as far as known.  Once that search
    has ended at the rates that it tried, the least D is ``confirmed``, and ``low`` and ``high`` are
    the least D that any single run reaches and that from which on no seed misses (None: larger than
    all).  ``seeds`` are the fewest at ``dim`` and ``below``; of a confirmed least D, as ``rates``,
    the most tried at either.
    ``fails_above`` lists the measured D wider than ``dim`` that do not reach it.
    ``open_below`` and ``open_above`` list planned dimensions without a result between ``below`` and
    ``dim`` and, where none reaches the threshold, anywhere; of a confirmed least D, none.  Under a
    D that fails all are taken to fail.
    """

    size: int
    max_len: float
    dim: int | None
    below: int | None
    best_dim: int | None
    best_accuracy: float
    open_below: tuple[int, ...]
    open_above: tuple[int, ...]
    searched: bool = False
    confirmed: bool = False
    low: int | None = None
    high: int | None = None
    seeds: int = 0
    rates: int = 0
    tried: bool = True
    fails_above: tuple[int, ...] = ()

    @property
    def state(self) -> str:
        """One of reached, not reached, incomplete (none reaches it, some lack), no result, not run.

        Without a result is what was ``tried`` and failed or was stopped.
        """
        if self.dim is not None:
            return "reached"
        if self.best_dim is None:
            return "no result" if self.tried else "not run"
        return "incomplete" if self.open_above else "not reached"

    @property
    def measured(self) -> bool:
        """Whether any D has a result."""
        return self.state not in UNMEASURED

    @property
    def evidence(self) -> str:
        """Return in words what stands behind the least D."""
        seeds = "1 seed" if self.seeds == 1 else f"{self.seeds} seeds"
        if self.searched and not self.confirmed:
            return "confirmation begun"
        if not self.confirmed:
            return seeds if self.seeds == 1 else f"mean of {seeds}"
        rates = "1 rate" if self.rates == 1 else f"{self.rates} rates"
        return f"median of {seeds}, {rates}"


def requirements_of(grid: Grid, column: str, row: str) -> list[Requirement]:
    """Return a `Requirement` per size of one panel, by all runs of a search where there was one."""
    return requirements(grid.panel(column, row), grid.trials)


def requirements(
    panel: pd.DataFrame, trials: pd.DataFrame | None = None, threshold: float = THRESHOLD
) -> list[Requirement]:
    """Return a `Requirement` per size of ``panel`` (cells of one task and model), by size.

    ``trials`` are the runs behind the cells (`Grid.trials`); without them nothing is confirmed.
    """
    found = []
    for size in np.unique(panel["size"]):
        part = panel[panel["size"] == size]
        plain = _requirement(int(size), part, threshold)
        group = None if trials is None else group_of(part, trials)
        if trials is None or group is None:
            found.append(plain)
        elif group.solved or not _has_further(part, trials):
            found.append(_confirmed(plain, group) if group.solved else plain)
        else:
            tried = at_tried_rates(group)
            found.append(_confirmed(plain, tried) if tried.solved else _begun(plain, group))
    return found


def _has_further(part: pd.DataFrame, trials: pd.DataFrame) -> bool:
    """Tell whether a search has measured a seed or rate that the plan lacks."""
    runs = trials[trials["point"].isin(part["point"])]
    return bool((runs["further"].eq(True) & runs["status"].ne("not run")).any())


def deciding_runs(grid: Grid, column: str, row: str, item: Requirement) -> pd.DataFrame:
    """Return the finished runs by which ``item.dim`` reaches the threshold, planned seeds first.

    They have the cell's own learning rate, unless a search found the least D by another: then
    they have the rate whose median seed is best.
    """
    panel = grid.panel(column, row)
    points = panel.loc[(panel["size"] == item.size) & (panel["dim"] == item.dim), "point"]
    done = grid.trials["point"].isin(points) & (grid.trials["status"] == "done")
    runs = grid.trials[done]
    own = runs[runs["own"]]
    if not item.searched or _lower_median(own) >= THRESHOLD:
        return own
    return max((found for _, found in runs.groupby("rate")), key=_lower_median, default=own)


def _lower_median(runs: pd.DataFrame) -> float:
    return float(statistics.median_low(runs["answer_accuracy"])) if len(runs) else 0.0


def _requirement(size: int, part: pd.DataFrame, threshold: float) -> Requirement:
    done = part[part["state"] == "done"].sort_values("dim")
    failing = done["accuracy"] < threshold
    reached = done[~failing]
    dim = int(reached["dim"].min()) if len(reached) else None
    under = done[done["dim"] < dim] if dim is not None else done
    lacking = sorted(int(value) for value in part.loc[part["state"] != "done", "dim"])
    best = done.iloc[int(np.argmax(done["accuracy"]))] if len(done) else None
    best_dim = int(best["dim"]) if best is not None else None
    below = int(under["dim"].max()) if len(under) else 0
    edge = [dim, below] if dim is not None else [best_dim]
    counted = done.loc[done["dim"].isin(edge), "seeds"]
    return Requirement(
        size=int(size),
        max_len=float(part["max_len"].max()),
        dim=dim,
        below=below or None,
        best_dim=best_dim,
        best_accuracy=float(best["accuracy"]) if best is not None else float("nan"),
        open_below=tuple(d for d in lacking if dim is not None and below < d < dim),
        open_above=tuple(lacking) if dim is None else (),
        seeds=int(counted.min()) if len(counted) else 0,
        rates=int(len(counted) > 0),
        tried=bool((part["state"] != "not run").any()),
        fails_above=tuple(int(d) for d in done.loc[failing, "dim"] if dim is not None and d > dim),
    )


def _begun(plain: Requirement, group: Group) -> Requirement:
    """Return what the runs of a search say that has not ended."""
    low, high, widths = group.low, group.high, group.widths
    reached = high < len(widths)
    lacking = [width.dim for width in widths if width.reaches is None]
    return dataclasses.replace(
        plain,
        dim=widths[high].dim if reached else None,
        below=widths[low].dim if low >= 0 else None,
        open_below=tuple(width.dim for width in widths[low + 1 : high]) if reached else (),
        open_above=() if reached else tuple(lacking),
        searched=True,
        fails_above=_fails_above(group),
        seeds=min((len(width.best) for width in group.edge), default=0),
        rates=min((sum(map(_any_known, width.runs)) for width in group.edge), default=0),
    )


def _any_known(seeds: list[Run]) -> bool:
    return any(run.reaches is not None for run in seeds)


def _fails_above(group: Group) -> tuple[int, ...]:
    return tuple(width.dim for width in group.widths[group.high :] if width.reaches is False)


def _confirmed(plain: Requirement, group: Group) -> Requirement:
    lowest, highest = group.interval
    rates = [seeds for width in group.edge for seeds in width.runs]
    known = [[run for run in seeds if run.reaches is not None] for seeds in rates]
    return dataclasses.replace(
        plain,
        dim=group.least_dim,
        below=group.dims[group.low] if group.low >= 0 else None,
        open_below=(),
        open_above=(),
        searched=True,
        confirmed=True,
        low=lowest,
        high=highest,
        fails_above=_fails_above(group),
        seeds=max(map(len, known)),
        rates=max(sum(map(_any_known, width.runs)) for width in group.edge),
    )
