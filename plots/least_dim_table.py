"""Least D at a glance: a row per model, a column per task and size, with what stands behind it.

A least D that rests on one point may be luck.  So each stands with the answer accuracy of every
run that decides it, and with that of the runs at the next smaller D, which fall short.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from plots import style, tabular
from plots.budgets import MARK, NOTE, YES, Budgets, of_grid
from plots.cells import Grid, gather, records
from plots.frontier import Requirement, deciding_runs, requirements_of
from plots.least_dim_rows import CRITERION
from plots.tabular import Tabular
from plots.words import notes_of

NAME = "least_dim_table"
METHOD = (
    "In brackets: answer accuracy in percent of the runs at that D, a number a seed, and after the "
    "semicolon of those at the next smaller D measured (no semicolon: none smaller has a result). "
    "A D counts by the mean of its seeds, or, where a search went on to further seeds and rates, "
    "by the median seed at its best rate. ≤: a D between the two has no result; >: no D measured "
    "reaches 90 %, and the best stands in brackets; –: not run. Bold: the least of its column."
)


def draw(table: pd.DataFrame, plan: pd.DataFrame, experiment: Any, out: Path) -> list[Path]:
    """Write ``least_dim_table.csv``, ``.md`` and ``.tex`` and return their paths."""
    grid = gather(table, plan)
    frame = rows(grid, of_grid(grid, out.parent))
    return tabular.write(printed_table(frame, grid, experiment).texts(frame), out, NAME)


def rows(grid: Grid, budgets: Budgets) -> pd.DataFrame:
    """Return a row per task, size and model.

    ``dim`` and ``below`` are as in `plots.frontier.Requirement`; ``accuracies`` and
    ``accuracies_below`` list the runs behind them (of ``best_dim`` where no D reaches 90 %).
    """
    found = [
        _row(grid, column, row, item, budgets[column, row, item.size].limited)
        for column in grid.columns
        for row in grid.model_rows
        for item in requirements_of(grid, column, row)
    ]
    frame = pd.DataFrame(found)
    integers = ["max_len", "dim", "below", "best_dim", "largest_dim"]
    frame[integers] = frame[integers].astype("Int64")
    return frame


def _row(grid: Grid, column: str, row: str, item: Requirement, limited: str) -> dict[str, Any]:
    panel = grid.panel(column, row)
    done = panel[(panel["size"] == item.size) & (panel["state"] == "done")]

    def percents(dim: int | None) -> str:
        if dim is None:
            return ""
        runs = deciding_runs(grid, column, row, dataclasses.replace(item, dim=dim))
        return " ".join(style.percent(float(share)) for share in runs["answer_accuracy"])

    return {
        "task": column,
        "size": item.size,
        "max_len": None if pd.isna(item.max_len) else int(item.max_len),
        "model": row,
        "state": item.state,
        "dim": item.dim,
        "accuracies": percents(item.dim or item.best_dim),
        "below": item.below if item.dim else None,
        "accuracies_below": percents(item.below) if item.dim else "",
        "best_dim": item.best_dim,
        "largest_dim": done["dim"].max() if len(done) else None,
        "bound": "yes" if item.open_below else "no",
        "limited_by_budget": limited,
        "evidence": item.evidence if item.dim else "",
    }


def text_of(line: Any) -> str:
    """Return a cell of the printed table, such as ``32† (99.9 98.7 99.1; 16: 20.0 27.2 21.0)``."""
    if pd.isna(line.largest_dim):
        return "–" if line.state == "not run" else line.state
    if pd.isna(line.dim):
        at = "" if line.best_dim == line.largest_dim else f"{line.best_dim}: "
        return f"> {line.largest_dim} ({at}{line.accuracies})"
    mark = MARK if line.limited_by_budget == YES else ""
    below = "" if pd.isna(line.below) else f"; {line.below}: {line.accuracies_below}"
    return f"{'≤ ' if line.bound == 'yes' else ''}{line.dim}{mark} ({line.accuracies}{below})"


def printed_table(frame: pd.DataFrame, grid: Grid, experiment: Any) -> Tabular:
    """Return the table as it is printed, columns by task and size."""
    heads = frame[["task", "size", "max_len"]].drop_duplicates()
    columns = list(heads.itertuples(index=False, name=None))
    lines = {(line.task, line.size, line.model): line for line in records(frame)}
    body = [
        [row, *(_cell(lines.get((task, size, row))) for task, size, _ in columns)]
        for row in grid.model_rows
    ]
    return Tabular(
        title=f"Least D for 90 %: {experiment.name}",
        label=tabular.label_of("least-dim", experiment.name),
        caption=f"Least embedding dimension D for an {CRITERION}.",
        header=["model", *map(_head, columns)],
        rows=body,
        notes=_notes(frame, grid, experiment),
        groups=0,
        marked=_least(frame, columns, grid.model_rows),
    )


def _cell(line: Any | None) -> str:
    return "–" if line is None else text_of(line)


def _head(column: tuple[str, int, Any]) -> str:
    task, size, length = column
    return f"{task}, n = {size}" + ("" if pd.isna(length) else f", L = {length}")


def _least(
    frame: pd.DataFrame, columns: Sequence[tuple[str, int, Any]], models: Sequence[str]
) -> set[tuple[int, int]]:
    """Return the places of the least D of each column, where at least two models have one."""
    marked = set()
    for x, (task, size, _) in enumerate(columns, start=1):
        part = frame[(frame["task"] == task) & (frame["size"] == size)].dropna(subset=["dim"])
        if len(part) > 1:
            least = part.loc[part["dim"] == part["dim"].min(), "model"]
            marked |= {(list(models).index(model), x) for model in least}
    return marked


def _notes(frame: pd.DataFrame, grid: Grid, experiment: Any) -> list[str]:
    limited = [NOTE.split(";")[0] + "."] if frame["limited_by_budget"].eq(YES).any() else []
    budget = [f"Budget: {experiment.budget.strip().rstrip('.')}."] if experiment.budget else []
    return [METHOD, *limited, *budget, *notes_of(grid)]
