"""What the least D would have been with a part of the training budget.

Every run keeps its validation curve, and what it shows at a quarter and at half of the steps says
whether more steps would still move the frontier.  Validation chain exact match stands in for answer
accuracy on the test set, at the same threshold; so the least D of these curves is compared with
itself only.  A run that stopped early, solved, keeps its last value.  At half the steps of a run
its rate has not come down yet, as it would have in a run of half the length: the least D at a part
of the budget is, if anything, too large.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from plots.cells import Grid
from plots.curves import read_config, read_curve
from plots.frontier import Requirement, requirements_of
from plots.paper import THRESHOLD
from plots.text import sizes_text
from sweeps.least_dim import DIVERGED, SEEDS

FRACTIONS = {"quarter": 0.25, "half": 0.5, "all": 1.0}
YES, NO, UNKNOWN, NO_FRONTIER = "yes", "no", "unknown", ""
MARK = "†"
RISING = 0.1  # of the validation chains, between half and all of the steps
NOTE = (
    "† limited by the budget: by validation chains the least D is not reached at half of the "
    "steps; unknown: no learning curves, validation chains below 90 % throughout, or the next "
    "smaller D still rising by 10 points in the second half."
)


@dataclass(frozen=True)
class Least:
    """The least D at a part of the budget: in (``below``, ``dim``], larger than all where None.

    ``sure`` is whether every measured D up to ``dim`` has a curve.
    """

    dim: int | None
    below: int | None
    sure: bool

    def text(self) -> str:
        """Return e.g. ``48``, ``≤ 48``, ``> 128`` or ``?``."""
        if self.dim is not None:
            return f"{self.dim}" if self.sure else f"≤ {self.dim}"
        return f"> {self.below}" if self.sure and self.below is not None else "?"


@dataclass(frozen=True)
class Budgeted:
    """The least D of one task, model and size at each of `FRACTIONS` of the budget.

    ``limited`` is yes where the least D does not reach the threshold at half of the budget, no
    where it does, unknown where curves cannot tell (`_limited`), and empty where no D reaches the
    threshold or nothing was trained.
    """

    least: dict[str, Least]
    limited: str

    def columns(self) -> dict[str, str]:
        """Return what tables say of it."""
        dims = {f"dim_{name}_budget": least.text() for name, least in self.least.items()}
        return {"limited_by_budget": self.limited, **dims}


Key = tuple[str, str, int]
Budgets = Mapping[Key, Budgeted]


def of_grid(grid: Grid, folder: Path | None) -> dict[Key, Budgeted]:
    """Return the least D at each part of the budget by (column, row, size) of the grid."""
    found = {}
    shares = shares_of(grid.trials, folder)
    for column in grid.columns:
        for row in grid.model_rows:
            panel = grid.panel(column, row)
            runs = shares.merge(panel[["point", "dim", "size"]], on="point")
            for item in requirements_of(grid, column, row):
                found[column, row, item.size] = _budgeted(item, runs[runs["size"] == item.size])
    return found


def shares_of(trials: pd.DataFrame, folder: Path | None) -> pd.DataFrame:
    """Return ``point``, ``rate``, ``own`` of each measured run, and its share at each fraction."""
    rows = []
    for run in _runs(trials[trials["status"].isin(["done", "failed"])]):
        diverged = run["status"] == "failed" and str(run.get("reason")).startswith(DIVERGED)
        if run["status"] == "failed" and not diverged:
            continue
        shares = [0.0] * len(FRACTIONS) if diverged else _shares(run, folder)
        row = {name: run[name] for name in ("point", "rate", "own", "recipe")}
        rows.append(row | {"diverged": diverged} | dict(zip(FRACTIONS, shares, strict=True)))
    columns = ["point", "rate", "own", "recipe", "diverged", *FRACTIONS]
    return pd.DataFrame(rows, columns=columns)


def _runs(trials: pd.DataFrame) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", trials.to_dict("records"))


def _shares(run: Mapping[str, Any], folder: Path | None) -> list[float]:
    unknown = [np.nan] * len(FRACTIONS)
    if folder is None or trained_size(run, folder) != int(run["size"]):
        return unknown  # the curve tells of the size that was trained on
    steps = budget_steps(run, folder)
    curve = _curve(folder, str(run["cell"]))
    if steps is None or curve is None:
        return unknown
    last = [np.searchsorted(curve[0], part * steps, side="right") for part in FRACTIONS.values()]
    return [float(curve[1][count - 1]) if count else np.nan for count in last]


@functools.lru_cache(maxsize=2**14)
def _curve(folder: Path, cell: str) -> tuple[np.ndarray, np.ndarray] | None:
    curve = read_curve(folder, cell)
    if curve is None or curve.empty:
        return None
    return curve["step"].to_numpy(), curve["validation_chain_exact_match"].to_numpy()


def budget_steps(run: Mapping[str, Any], folder: Path) -> float | None:
    """Return the steps that a run might have made; None when not known.

    Those of its recipe, from the configuration beside the table; without one, those it made, unless
    it stopped early.
    """
    stated = run.get("recipe.steps") or _setting(folder, str(run["cell"]), "recipe", "steps")
    if stated:
        return float(stated)
    made = run.get("steps")
    early = run.get("stopped") == "solved"
    return float(made) if made is not None and made == made and not early else None


def trained_size(run: Mapping[Any, Any], folder: Path) -> int:
    """Return the problem size that a run was trained on, which its curve tells of.

    From the configuration beside the table; without one, the size measured.
    """
    stated = run.get("task.size") or _setting(folder, str(run["cell"]), "task", "size")
    return int(stated or run["size"])


def _setting(folder: Path, cell: str, section: str, key: str) -> int | float | None:
    """Return a number of the configuration beside the table; None where it has none."""
    value = read_config(folder, cell).get(section, {}).get(key)
    return value if isinstance(value, int | float) else None


def _budgeted(item: Requirement, runs: pd.DataFrame) -> Budgeted:
    scores = {
        int(str(dim)): [_score(part, name, item.searched) for name in FRACTIONS]
        for dim, part in runs.groupby("dim")
    }
    least = {name: _least(scores, place) for place, name in enumerate(FRACTIONS)}
    if item.dim is None or (runs["recipe"] == "constructed").all():
        return Budgeted(least, NO_FRONTIER if item.dim is None or len(runs) else UNKNOWN)
    return Budgeted(least, _limited(item, scores))


def _limited(item: Requirement, scores: Mapping[int, list[float]]) -> str:
    """Tell whether the budget limits a least D: by the curves of that D and of the one below it.

    Unknown where its validation chains do not reach the threshold that answers reach, or where the
    next smaller D was still rising by `RISING` or more and may yet arrive.
    """
    _, half, whole = scores.get(item.dim or 0, [np.nan] * len(FRACTIONS))
    if np.isnan(half) or np.isnan(whole) or whole < THRESHOLD:
        return UNKNOWN
    if half < THRESHOLD:
        return YES
    _, half_below, whole_below = scores.get(item.below or 0, [0.0] * len(FRACTIONS))
    still = whole_below - half_below >= RISING
    return UNKNOWN if still or np.isnan(whole_below) or np.isnan(half_below) else NO


def _score(runs: pd.DataFrame, fraction: str, searched: bool) -> float:
    """Return what decides whether a D reaches the threshold; NaN when a run has no curve.

    The statistic of the least D itself: the mean over seeds, and of a searched one the median seed
    at the best rate.  A rate that most seeds lack has no median.
    """
    counted = runs if searched else runs[runs["own"] & ~runs["diverged"]]
    if counted.empty or counted[fraction].isna().any():
        return float("nan")
    if not searched:
        return float(counted[fraction].mean())
    by_rate = [values for _, values in counted.fillna({"rate": 0.0}).groupby("rate")[fraction]]
    half = max(SEEDS, *map(len, by_rate)) // 2
    decided = [values for values in by_rate if len(values) > half]
    decided = decided or [counted.loc[counted["own"], fraction]]
    medians = [float(statistics.median_low(values)) for values in decided if len(values)]
    return max(medians, default=float("nan"))


def _least(scores: Mapping[int, list[float]], place: int) -> Least:
    known = {dim: found[place] for dim, found in sorted(scores.items())}
    dim = next((dim for dim, share in known.items() if share >= THRESHOLD), None)
    under = {d: share for d, share in known.items() if dim is None or d < dim}
    missing = [d for d, share in under.items() if np.isnan(share)]
    below = max((d for d in under if d not in missing), default=None)
    return Least(dim, below, not missing)


def sentences(found: Budgets) -> list[str]:
    """Say which frontiers the budget limits and of which that is unknown; empty for neither."""
    told = []
    reached = sum(item.limited != NO_FRONTIER for item in found.values())
    if limited := _where(found, YES):
        told.append(
            "Limited by the budget (by validation chains the least D is not reached at half of the "
            f"steps): {limited}."
        )
    if unknown := _where(found, UNKNOWN):
        number = sum(item.limited == UNKNOWN for item in found.values())
        which = "" if number == reached else f": {unknown}"
        told.append(
            f"Whether the budget limits it is unknown for {number} of {reached} least D (no "
            "learning curves, validation chains below 90 % throughout, or the next smaller D still "
            f"rising){which}."
        )
    if not told and reached:
        told.append("Every least D is reached at half of the steps (by validation chains).")
    return told


def _where(found: Budgets, limit: str) -> str:
    """Return where it is so, as `sizes_text` says it."""
    return sizes_text(place for place, item in found.items() if item.limited == limit)


def steps_text(trials: pd.DataFrame, folder: Path) -> str:
    """Return the budgets of the measured runs in words, such as ``1,500 steps``."""
    done = trials[trials["status"] == "done"]
    steps = sorted({made for run in _runs(done) if (made := budget_steps(run, folder)) is not None})
    return _span(steps)


def _span(values: Iterable[float]) -> str:
    values = list(values)
    if not values:
        return "steps not known"
    low, high = values[0], values[-1]
    return f"{low:,.0f} steps" if low == high else f"{low:,.0f} to {high:,.0f} steps"
