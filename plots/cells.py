"""From a results table to what the figures show: a row per cell, seeds gathered, states told.

A *cell* here is a point of the grid without its seed.  Its accuracy is the mean over the seeds that
are done; its state says what became of it:

done        at least one seed has a result
failed      no result, and at least one seed failed
unfinished  no result, and at least one seed was stopped by a limit
not run     planned, and nothing is known of it
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from plots import style

KEYS = ["task", "format", "size", "layers", "recipe", "model", "dim"]
STATES = ("done", "failed", "unfinished", "not run")
MEASURES = ["max_len", "heads", "params", "n_test", "flops_linear_layers", "flops_total"]
MEASURES += ["flops_training", "state_bytes", "train_seconds", "eval_seconds", "steps"]
_DEFAULTS: dict[str, Any] = {"format": "cot", "recipe": "", "layers": 0, "seed": 0}


@dataclass
class Grid:
    """What a figure draws.

    ``cells`` has a row per cell: the keys, ``state``, ``accuracy`` (mean), ``accuracy_min``,
    ``accuracy_max``, ``accuracy_low``, ``accuracy_high`` (95 % Wilson, for a single seed only),
    ``chain_exact_match`` (mean), ``seeds`` (done), ``seeds_planned``, the measures (mean over
    seeds, empty where not measured), and ``column`` and ``row``: labels of the figure's columns
    (task, and format where it varies) and rows (model, and layers and recipe where they vary).
    ``rows`` is the table without the rows that were set aside; ``notes`` says which and why.
    """

    cells: pd.DataFrame
    rows: pd.DataFrame
    notes: list[str] = field(default_factory=list)

    @property
    def columns(self) -> list[str]:
        """Labels of the columns: known tasks in the paper's order, then others."""
        return _ordered(self.cells, "column", "task", style.TASKS)

    @property
    def model_rows(self) -> list[str]:
        """Labels of the rows: known models in the paper's order, then others."""
        return _ordered(self.cells, "row", "model", style.MODELS)

    def panel(self, column: str, row: str) -> pd.DataFrame:
        """Return the cells of one panel."""
        return self.cells[(self.cells["column"] == column) & (self.cells["row"] == row)]


def _ordered(cells: pd.DataFrame, label: str, name: str, known: dict[str, str]) -> list[str]:
    ordered = []
    for value in style.in_order(cells[name], known):
        part = cells[cells[name] == value].sort_values(["format", "layers", "recipe"])
        ordered += [text for text in part[label].unique() if text not in ordered]
    return ordered


def gather(table: pd.DataFrame, plan: pd.DataFrame) -> Grid:
    """Return the grid that ``table`` and ``plan`` (a row per planned cell and seed) make."""
    table, plan = _with_defaults(table), _with_defaults(plan)
    rows, notes = _one_row_per_seed(table, set(plan.get("cell", [])))
    wanted = pd.concat([plan[[*KEYS, "seed"]], rows[[*KEYS, "seed"]]]).drop_duplicates()
    merged = wanted.merge(rows, on=[*KEYS, "seed"], how="left")
    merged["status"] = merged["status"].fillna("not run")
    cells = _summary(merged)
    cells["max_len"] = _max_len(cells, plan)
    return Grid(_labelled(cells), rows, notes)


def _with_defaults(frame: pd.DataFrame) -> pd.DataFrame:
    frame = frame.copy()
    for column, value in _DEFAULTS.items():
        frame[column] = frame[column].fillna(value) if column in frame else value
    for column in ("size", "layers", "dim", "seed"):
        frame[column] = frame[column].astype(int)
    return frame


def _one_row_per_seed(table: pd.DataFrame, planned: set[str]) -> tuple[pd.DataFrame, list[str]]:
    """Keep one row per cell and seed: the planned configuration's, else the newest.

    Two rows share all keys and the seed only when they differ in something that the table has no
    column for (another budget, say); their mean would mean nothing.
    """
    order = pd.DataFrame(index=table.index)
    order["planned"] = table["cell"].isin(planned)
    finished = table.get("finished_at", pd.Series("", table.index)).astype(object)
    order["finished"] = finished.fillna("").astype(str)
    newest_last = table.loc[order.sort_values(["planned", "finished"], kind="stable").index]
    kept = newest_last.drop_duplicates([*KEYS, "seed"], keep="last").sort_index()
    notes = []
    if dropped := len(table) - len(kept):
        rows = "1 row" if dropped == 1 else f"{dropped} rows"
        notes.append(
            f"{rows} of the table left out: same cell and seed, but another configuration or older"
        )
    if planned and (others := int((~kept["cell"].isin(planned)).sum())):
        rows = "1 row has a configuration" if others == 1 else f"{others} rows have configurations"
        notes.append(f"{rows} other than the experiment plans today")
    return kept.reset_index(drop=True), notes


def _summary(runs: pd.DataFrame) -> pd.DataFrame:
    """Return a row per cell from a row per planned or recorded seed."""
    runs = runs.assign(done=runs["status"] == "done", rank=runs["status"].map(STATES.index))
    names = ["answer_accuracy", "answer_accuracy_low", "answer_accuracy_high", "chain_exact_match"]
    for name in [*names, *MEASURES]:
        values = runs[name] if name in runs else pd.Series(np.nan, runs.index)
        runs[name] = pd.to_numeric(values).astype(float)
    runs[names] = runs[names].where(runs["done"], axis=0)
    groups = runs.groupby(KEYS, sort=True)
    cells = groups.agg(
        rank=("rank", "min"),
        accuracy=("answer_accuracy", "mean"),
        accuracy_min=("answer_accuracy", "min"),
        accuracy_max=("answer_accuracy", "max"),
        accuracy_low=("answer_accuracy_low", "mean"),
        accuracy_high=("answer_accuracy_high", "mean"),
        chain_exact_match=("chain_exact_match", "mean"),
        seeds=("done", "sum"),
        seeds_planned=("done", "size"),
    )
    single = cells["seeds"] == 1
    for name in ("accuracy_low", "accuracy_high"):
        cells[name] = cells[name].where(single)
    cells = cells.join(groups[MEASURES].mean()).reset_index()
    return cells.assign(state=cells.pop("rank").map(lambda rank: STATES[rank]))


def _max_len(cells: pd.DataFrame, plan: pd.DataFrame) -> pd.Series:
    """L depends on task, format and size alone, so a cell that was not run knows it from others."""
    keys = ["task", "format", "size"]
    known = cells.groupby(keys)["max_len"].transform("max")
    if "max_len" in plan:
        stated = plan.groupby(keys)["max_len"].max()
        index = pd.MultiIndex.from_frame(cells[keys])
        known = known.fillna(pd.Series(stated.reindex(index).to_numpy(), index=cells.index))
    return known


def records(frame: pd.DataFrame) -> list[Any]:
    """Return the rows as named tuples."""
    return list(frame.itertuples(index=False))


def _labelled(cells: pd.DataFrame) -> pd.DataFrame:
    columns = cells["task"].map(style.task_label)
    if cells["format"].nunique() > 1:
        columns = columns + ", " + cells["format"]
    rows = cells["model"].map(style.model_label)
    if cells["layers"].nunique() > 1:
        rows = rows + ", " + cells["layers"].astype(str) + " layers"
    if cells["recipe"].nunique() > 1:
        rows = rows + ", " + cells["recipe"].astype(str)
    return cells.assign(column=columns, row=rows)


def plan_from_table(table: pd.DataFrame) -> pd.DataFrame:
    """Return the plan of an ad-hoc table: what it holds, no more."""
    names = [name for name in [*KEYS, "seed", "cell"] if name in table]
    return table[names].drop_duplicates(ignore_index=True)


def seeds_text(cells: pd.DataFrame) -> str:
    """Say how many seeds stand behind the numbers and which statistic is shown."""
    counts = sorted(set(cells.loc[cells["state"] == "done", "seeds"]))
    if not counts:
        return "no results yet"
    if counts == [1]:
        return "one seed per cell"
    several = f"{counts[0]} seeds" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"
    return f"mean of {several}"


def setting_text(grid: Grid) -> str:
    """Say what the heatmap's cells share: metric, test sequences, layers, heads, recipe, seeds."""
    cells = grid.cells
    parts = ["Answer accuracy in percent, greedy generation"]
    if tests := _span(cells.loc[cells["state"] == "done", "n_test"]):
        parts.append(f"{tests} test sequences per cell")
    for name in ("layers", "heads"):
        value = cells[name].dropna().unique()
        if len(value) == 1 and value[0] > 0:
            parts.append(f"{value[0]:.0f} {name if value[0] != 1 else name[:-1]}")
    recipes = cells["recipe"].unique()
    if len(recipes) == 1 and recipes[0]:
        parts.append(f"recipe {recipes[0]}")
    spread = " (small print: minimum–maximum)" if (cells["seeds"] > 1).any() else ""
    parts.append(seeds_text(cells) + spread)
    return "; ".join(parts) + "."


def _span(values: pd.Series) -> str:
    values = values.dropna()
    if values.empty:
        return ""
    low, high = values.min(), values.max()
    return f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"
