"""What the models of least D cost, in rows: what was counted, timed, and spent on training."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from plots import least_dim_rows
from plots.answers import Timed, timed_together
from plots.budgets import Budgets
from plots.cells import Grid
from plots.currencies import CURRENCIES, winners
from plots.frontier import deciding_runs, requirements_of
from records.table import MOVED, training_devices


def rows(
    grid: Grid, budgets: Budgets | None = None, answers: Sequence[dict[str, Any]] = ()
) -> pd.DataFrame:
    """Return the table: `least_dim_rows.rows`, and per model the costs and ``best_*``.

    ``group`` numbers what is compared: models of one task and size, of equal layers, heads and
    recipe where a model has several; a hybrid's number of layers is its own.  ``best_*`` is whether
    a model wins a currency: yes, no, or empty without a comparison.
    """
    frame = least_dim_rows.rows(grid, budgets)
    flops = {f"gflops_{name.removeprefix('flops_')}": name for name in least_dim_rows.CONVENTIONS}
    frame = frame.rename(columns=flops)
    frame[[*flops.values()]] *= 1e9
    costs = pd.DataFrame(_costs(grid, answers))
    frame = frame.merge(costs, on=["task", "model", "size"], how="left", validate="1:1")
    several = [k for k in ("layers", "heads", "recipe") if _varies_in_a_model(frame, k)]
    frame["group"] = frame.groupby(["task", "size", *several], sort=False).ngroup()
    frame = frame.sort_values("group", kind="stable", ignore_index=True)
    for name in CURRENCIES:
        frame[f"best_{name}"] = ""
        for _, part in frame.groupby("group", sort=False):
            frame.loc[part.index, f"best_{name}"] = winners(part, name)
    return frame


def _varies_in_a_model(frame: pd.DataFrame, key: str) -> bool:
    return bool((frame.groupby("name")[key].nunique() > 1).any())


def _costs(grid: Grid, answers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for column in grid.columns:
        for size in np.unique(grid.cells.loc[grid.cells["column"] == column, "size"]):
            items = {
                row: item
                for row in grid.model_rows
                for item in requirements_of(grid, column, row)
                if item.size == size
            }
            runs = {row: deciding_runs(grid, column, row, item) for row, item in items.items()}
            cells = {row: list(map(str, runs[row]["cell"])) for row in items}
            timed, _ = timed_together(answers, cells)
            found += [
                {"task": column, "model": row, "size": size}
                | _cost(grid.panel(column, row).iloc[0], runs[row], timed.get(row))
                for row in items
            ]
    return found


def _cost(first: Any, runs: pd.DataFrame, timed: Timed | None) -> dict[str, Any]:
    share = _column(runs, "steps_to_90") / _column(runs, "steps")
    steps = _upper_median(_column(runs, "steps_to_90"), runs)
    return {
        **{name: first[name] for name in ("layers", "heads", "recipe")},
        "name": first["model"],
        "state_bytes": float(_column(runs, "state_bytes").max()),
        "answer_seconds": timed.median("answer_seconds") if timed else np.nan,
        "tokens_per_second": timed.median("tokens_per_second") if timed else np.nan,
        "training_step_seconds": timed.median("training_step_seconds") if timed else np.nan,
        "timed_weights": timed.weights if timed else "",
        "timed": timed,
        "steps_to_90": steps,
        "training_flops": _upper_median(share * _column(runs, "flops_training"), runs),
        "training_seconds": steps * (timed.median("training_step_seconds") if timed else np.nan),
        "seconds_as_run": _upper_median(_column(runs, "seconds_to_90"), runs),
        "train_seconds": _upper_median(_column(runs, "train_seconds"), runs),
        "trained_on": MOVED.join(sorted(set(training_devices(runs).dropna()))),
    }


def _column(runs: pd.DataFrame, name: str) -> pd.Series:
    values = runs[name] if name in runs else pd.Series(np.nan, runs.index)
    return pd.to_numeric(values).astype(float)


def _upper_median(values: pd.Series, runs: pd.DataFrame) -> float:
    """Return the upper median over the runs, a run without a value being dearer than any."""
    if runs.empty:
        return float("nan")
    middle = float(statistics.median_high(values.fillna(math.inf)))
    return float("nan") if math.isinf(middle) else middle
