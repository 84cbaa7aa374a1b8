"""The rows of the tables of cost: per task, size and model the least D, its FLOPs, what is open."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from plots import paper, style
from plots.budgets import MARK, YES, Budgeted, Budgets, of_grid
from plots.cells import Grid, records
from plots.frontier import UNMEASURED, Requirement, requirements_of
from plots.tabular import significant

CONVENTIONS = {"flops_linear_layers": "linear layers", "flops_total": "total"}
CRITERION = "answer accuracy of at least 90 %"


def rows(grid: Grid, budgets: Budgets | None = None) -> pd.DataFrame:
    """Return the table, a row per task, size and model.

    ``state`` is reached, not reached, incomplete (none of the measured reaches it and some are
    missing) or not run; FLOPs and D are empty unless reached.  ``smaller_unmeasured`` lists
    dimensions without a result between D and the largest that fails: then D and FLOPs are upper
    bounds.  ``confirmed``, ``seeds``, ``rates``, ``dim_low`` and ``dim_high`` say what stands
    behind D (`plots.frontier.Requirement`), ``limited_by_budget`` and ``dim_*_budget`` whether more
    steps would move it (`plots.budgets`).
    """
    budgets = of_grid(grid, None) if budgets is None else budgets
    found = [
        _row(grid, column, row, item, budgets[column, row, item.size])
        for column in grid.columns
        for row in grid.model_rows
        for item in requirements_of(grid, column, row)
    ]
    frame = pd.DataFrame(found)
    order = {label: place for place, label in enumerate(grid.columns)}
    frame["place"] = frame["task"].map(order)
    frame = frame.sort_values(["place", "size"], kind="stable").drop(columns="place")
    integers = ["max_len", "dim", "best_dim", "dim_low", "dim_high", "paper_length", "paper_dim"]
    frame[integers] = frame[integers].astype("Int64")
    return frame.reset_index(drop=True)


def _row(
    grid: Grid, column: str, row: str, item: Requirement, budgeted: Budgeted
) -> dict[str, Any]:
    panel = grid.panel(column, row)
    first = panel.iloc[0]
    values: dict[str, Any] = {
        "task": column,
        "size": item.size,
        "max_len": _integer(item.max_len),
        "model": row,
        "state": item.state,
        "dim": item.dim,
        "best_dim": item.best_dim,
        "best_accuracy": round(item.best_accuracy, 6),
        "smaller_unmeasured": " ".join(map(str, item.open_below)),
        "unmeasured": " ".join(map(str, item.open_above)),
        "seeds": item.seeds,
        "rates": item.rates,
        "confirmed": "yes" if item.confirmed else "no",
        "evidence": item.evidence if item.dim else "",
        "dim_low": item.low,
        "dim_high": item.high,
        **budgeted.columns(),
    }
    for name in CONVENTIONS:
        values[f"gflops_{name.removeprefix('flops_')}"] = _flops(grid, panel, item, name) / 1e9
    applies = paper.table_2_applies(first["task"], first["format"], first["layers"])
    model = first["model"] if applies else ""
    values["paper_length"] = paper.ARITHMETIC_LENGTHS.get(item.size) if applies else None
    values["paper_gflops"] = paper.TABLE_2_GFLOPS.get(model, {}).get(item.size, np.nan)
    values["paper_dim"] = paper.FRONTIER_DIM.get(model, {}).get(item.size)
    return values


def _integer(value: float) -> int | None:
    return None if np.isnan(value) else int(value)


def _flops(grid: Grid, panel: pd.DataFrame, item: Requirement, convention: str) -> float:
    """Return the FLOPs of the least D, empty without one; they do not depend on seed or rate."""
    cell = panel[(panel["size"] == item.size) & (panel["dim"] == item.dim)]
    known = grid.trials.loc[grid.trials["point"].isin(cell["point"]), convention]
    return float(known.max())


def caveat(part: pd.DataFrame) -> str:
    """Return in brackets which models of a size do not reach 90 %, or not surely."""
    without = [f"{line.model} {line.state}" for line in records(part) if line.state != "reached"]
    bounds = part.loc[part["smaller_unmeasured"] != "", "model"]
    limited = part.loc[part["limited_by_budget"] == YES, "model"]
    told = f" ({', '.join(without)})" if without else ""
    if len(bounds):
        told += f" (an upper bound for {', '.join(bounds)}: D just below lack results)"
    return told + (f" (limited by the budget: {', '.join(limited)})" if len(limited) else "")


def cells_of(line: Any) -> tuple[str, str | None, str | None]:
    """Return D, linear layers and total as the printed tables show them."""
    if line.state == "reached":
        bound = "≤ " if line.smaller_unmeasured else ""
        return (
            f"{bound}{line.dim}{MARK if line.limited_by_budget == YES else ''}",
            bound + significant(line.gflops_linear_layers),
            bound + significant(line.gflops_total),
        )
    if line.state in UNMEASURED:
        return line.state, "", ""
    best = f"best {style.percent(line.best_accuracy)} % at D = {line.best_dim}"
    lacking = line.unmeasured.replace(" ", ", ")
    return f"not reached ({best}{f'; no result for D = {lacking}' if lacking else ''})", None, None
