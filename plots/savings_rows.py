"""How many times less than standard attention each model costs at its least D, in rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from plots.budgets import NO, UNKNOWN, YES
from plots.cells import Grid
from plots.currencies import CURRENCIES
from plots.frontier import requirements_of
from plots.savings_text import BASELINE, baseline_of, reached

COLUMNS = ["task", "size", "max_len", "model", "dim", "standard", "standard_dim", "currency",
           "saved", "low", "high", "bound"]  # fmt: skip
COUNTED = ("flops_linear_layers", "flops_total", "state_bytes")  # known of a D that fails, too
SHOWN = [name for name in CURRENCIES if name != "seconds_as_run"]


def rows(costs: pd.DataFrame, grid: Grid) -> pd.DataFrame:
    """Return a row per task, size, model and currency in which it and standard attention are known.

    ``costs`` are `plots.cost_rows.rows`.  ``saved`` is the quotient; ``standard`` is the form of
    standard attention held against.  ``low`` and ``high`` bound the quotient: for what is counted
    (FLOPs of a forward pass, state) by the costs of the largest D that fails, since each least D
    lies somewhere above its own; for what was timed they are the least and largest over the turns.
    They are NaN where nothing bounds it: no smaller D has run, or the cost is one of training.
    ``bound`` is yes where the least D of either is only known from above: it is limited by the
    budget, a smaller D has not run, or the grid has none.  It is unknown where that hangs on a
    budget of which it is not known whether it limits.
    """
    smallest = grid.cells.groupby(["column", "row", "size"])["dim"].min()

    def bound(*lines: Any) -> str:
        found = {_bound(x, smallest[x["task"], x["model"], x["size"]]) for x in lines}
        return next(kind for kind in (YES, UNKNOWN, NO) if kind in found)

    told = []
    for base, line in _pairs(costs):
        same = {"task": line["task"], "size": line["size"], "max_len": line["max_len"],
                "model": line["model"], "dim": line["dim"], "standard": base["model"],
                "standard_dim": base["dim"],
                "bound": bound(base, line)}  # fmt: skip
        failing = _failing(base, grid), _failing(line, grid)
        for name in SHOWN:
            if base[name] > 0 and line[name] > 0:
                low, saved, high = _quotients(base, line, name, failing)
                told.append(same | {"currency": name, "saved": saved, "low": low, "high": high})
    return pd.DataFrame(told, columns=COLUMNS)


def _bound(line: Any, least_of_grid: int) -> str:
    """Tell whether the least D of a row of costs is known from above only."""
    if line["dim"] == least_of_grid or line["smaller_unmeasured"]:
        return YES
    limit = line["limited_by_budget"]
    return str(limit) if limit in (YES, UNKNOWN) else NO


def _pairs(costs: pd.DataFrame) -> Iterator[tuple[Any, Any]]:
    """Yield standard attention's row and another model's, of all that reach 90 % together."""
    for _, part in costs.groupby("group", sort=False):
        base = baseline_of(part)
        if base is not None:
            others = reached(part[part["name"] != BASELINE])
            yield from ((base, line) for _, line in others.iterrows())


def _failing(line: Any, grid: Grid) -> dict[str, float]:
    """Return what the largest D costs that fails below a least D, nothing where none does."""
    column, row, size = line["task"], line["model"], line["size"]
    below = next(item.below for item in requirements_of(grid, column, row) if item.size == size)
    panel = grid.panel(column, row)
    points = panel.loc[(panel["size"] == size) & (panel["dim"] == below), "point"]
    runs = grid.trials[grid.trials["point"].isin(points)]
    known = {name: float(pd.to_numeric(runs[name]).max()) for name in COUNTED if name in runs}
    return {name: value for name, value in known.items() if value > 0}


def _quotients(
    base: Any, line: Any, name: str, failing: tuple[dict[str, float], dict[str, float]]
) -> tuple[float, float, float]:
    """Return how many times less the model costs: at least, as measured, and at most.

    The first and the last are NaN where nothing bounds them.
    """
    currency = CURRENCIES[name]

    def saved(ours: float, theirs: float) -> float:
        return theirs / ours if currency.more_is_better else ours / theirs

    middle = saved(base[name], line[name])
    if currency.turns:
        turns = [getattr(x["timed"], currency.turns) for x in (base, line)]
        each = [saved(ours, theirs) for ours, theirs in zip(*turns, strict=True)]
        return min(each), middle, max(each)
    smaller_base, smaller = (costs.get(name, math.nan) for costs in failing)
    return smaller_base / line[name], middle, base[name] / smaller
