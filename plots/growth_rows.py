"""Least D against L, a row per task, model and size, and the fitted growth of each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from plots import paper
from plots.budgets import Budgeted, Budgets, of_grid
from plots.cells import Grid
from plots.fit import Growth
from plots.frontier import Requirement, requirements_of
from plots.resampling import growth_of


def points(grid: Grid, budgets: Budgets | None = None) -> pd.DataFrame:
    """Return a row per task, model and size: the requirement lies in (``below``, ``dim``].

    ``confirmed``, ``seeds``, ``rates``, ``low`` and ``high`` say what stands behind it
    (`plots.frontier.Requirement`), ``limited_by_budget`` and ``dim_*_budget`` whether more steps
    would move it (`plots.budgets`).
    """
    budgets = of_grid(grid, None) if budgets is None else budgets
    rows = []
    for column in grid.columns:
        for row in grid.model_rows:
            panel = grid.panel(column, row)
            for item in requirements_of(grid, column, row):
                key = {"task": column, "model": row, "name": panel["model"].iloc[0]}
                key["task_name"] = panel["task"].iloc[0]
                rows.append(key | _point(item, budgets[column, row, item.size]))
    return pd.DataFrame(rows)


def _point(item: Requirement, budgeted: Budgeted) -> dict[str, Any]:
    return {
        "size": item.size,
        "max_len": item.max_len,
        "state": item.state,
        "below": float(item.below or np.nan),
        "dim": float(item.dim or np.nan),
        "confirmed": item.confirmed,
        "seeds": item.seeds,
        "rates": item.rates,
        "low": float(item.low or np.nan),
        "high": float(item.high or np.nan),
        **budgeted.columns(),
    }


def fits(grid: Grid, fitted: dict[tuple[str, str], Growth | None] | None = None) -> pd.DataFrame:
    """Return a row per task and model: exponent, its interval and what theory says."""
    rows = []
    for (column, row), found in (growths(grid) if fitted is None else fitted).items():
        first = grid.panel(column, row).iloc[0]
        predictions = paper.predictions(first["task"], first["model"])
        rows.append({
            "task": column,
            "model": row,
            "exponent": found.exponent if found else np.nan,
            "low": found.low if found else np.nan,
            "high": found.high if found else np.nan,
            "sizes": found.points if found else 0,
            "comment": "" if found else "too few points",
            "theory": " or ".join(prediction.words() for prediction in predictions),
        })  # fmt: skip
    return pd.DataFrame(rows)


def growths(grid: Grid) -> dict[tuple[str, str], Growth | None]:
    """Return the fitted growth by (column, row)."""
    return {
        (column, row): growth_of(grid, column, row)
        for column in grid.columns
        for row in grid.model_rows
        if not grid.panel(column, row).empty
    }
