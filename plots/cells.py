"""From a results table to what the figures show: a row per cell, seeds gathered, states told.

A *cell* here is a point of the grid without its seed; beside the columns that every table has, any
setting with a column of its own (such as ``model.mixer.block_size``) tells cells apart.  Its
accuracy is the mean over the seeds that are done; its state says what became of it:

done        at least one seed has a result
failed      no result, and at least one seed failed
unfinished  no result, and at least one seed was stopped by a limit
not run     planned, and nothing is known of it
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from plots import confirmed, style
from plots.aligned import KEYS, aligned
from plots.labels import facets_of, labelled
from plots.paper import THRESHOLD

STATES = ("done", "failed", "unfinished", "not run")
MEASURES = ["max_len", "params", "n_test", "flops_linear_layers", "flops_total", "chance_accuracy"]
MEASURES += ["flops_training", "state_bytes", "train_seconds", "eval_seconds", "steps"]


@dataclass
class Grid:
    """What a figure draws.

    ``cells`` has a row per cell: the keys, ``state``, ``accuracy`` (mean), ``accuracy_min``,
    ``accuracy_max``, ``accuracy_low``, ``accuracy_high`` (95 % Wilson; the widest of its seeds'),
    ``chain_exact_match`` (mean), ``seeds`` (done), ``seeds_planned``, the measures (mean over
    seeds, empty where not measured), and ``column`` and ``row``: labels of the figure's columns
    (task, and format where it varies) and rows (model, and layers, heads and recipe where they
    vary), both with the other settings that tell cells apart; and ``point``, all that names the
    cell but its seed.  ``x_key`` and ``y_key`` are the settings on the axes of a heatmap.
    ``rows`` is the table without the rows that were set aside; ``notes`` says which and why, and
    ``untried`` what is left out since nothing of it has run, in words by column ("" for all);
    ``planned`` has a row per planned cell and seed.  ``trials`` has every run, measured or
    planned, those at other learning rates than the cells' own too, with ``point``, ``rate`` and
    ``own`` (see `plots.confirmed`).
    """

    cells: pd.DataFrame
    rows: pd.DataFrame
    notes: list[str] = field(default_factory=list)
    untried: list[tuple[str, str]] = field(default_factory=list)
    x_key: str = "dim"
    y_key: str = "size"
    planned: pd.DataFrame = field(default_factory=pd.DataFrame)
    trials: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def columns(self) -> list[str]:
        """Labels of the columns: known tasks in the paper's order, then others."""
        return self._ordered("column", "task", style.TASKS)

    @property
    def model_rows(self) -> list[str]:
        """Labels of the rows: known models in the paper's order, then others."""
        return self._ordered("row", "model", style.MODELS)

    def _ordered(self, label: str, name: str, known: dict[str, str]) -> list[str]:
        beside = [key for key in ("size", "dim") if key not in (self.x_key, self.y_key)]
        keys = ["format", "layers", "heads", "recipe", *beside, label]
        ordered = []
        for value in style.in_order(self.cells[name], known):
            ordered += self.cells[self.cells[name] == value].sort_values(keys)[label].tolist()
        return list(dict.fromkeys(ordered))

    def panel(self, column: str, row: str) -> pd.DataFrame:
        """Return the cells of one panel."""
        return self.cells[(self.cells["column"] == column) & (self.cells["row"] == row)]

    def runs(self, column: str) -> pd.DataFrame:
        """Return the table's rows of one column, with the labels ``column`` and ``row``."""
        labels = self.cells[["point", "column", "row"]]
        runs = self.rows.merge(labels, on="point", how="left")
        return runs[runs["column"] == column]


def gather(
    table: pd.DataFrame, plan: pd.DataFrame, facets: Mapping[str, Any] | None = None
) -> Grid:
    """Return the grid that ``table`` and ``plan`` (a row per planned cell and seed) make.

    ``facets`` may name the settings on the axes (``x``, ``y``) and those that make the figure's
    ``columns`` and ``rows``.
    """
    table, plan, others = aligned(table, plan)
    keys = [*KEYS, *others]
    rows, notes = _one_row_per_seed(table, keys, plan)
    trials, rows = rows, rows[rows["own"]]
    wanted = pd.concat([plan[[*keys, "seed"]], rows[[*keys, "seed"]]]).drop_duplicates()
    merged = wanted.merge(rows, on=[*keys, "seed"], how="left")
    merged["status"] = merged["status"].fillna("not run")
    cells = _summary(merged, keys)
    cells["max_len"] = _max_len(cells, plan)
    open_runs = merged.loc[merged["status"] == "not run"].assign(own=True)
    trials = pd.concat([open_runs, trials], ignore_index=True)
    # Planned seeds first: the search begins with them.
    trials = trials.sort_values("further", kind="stable", key=lambda flags: flags.eq(True))
    rows = rows.copy()
    for frame in (cells, rows, plan, trials):
        frame["point"] = list(frame[keys].itertuples(index=False, name=None))
    given = facets_of(facets or {}, keys)
    x, y = given["x"][0], given["y"][0]
    return Grid(labelled(cells, others, given), rows, notes, [], x, y, plan, trials)


def _one_row_per_seed(
    table: pd.DataFrame, keys: list[str], plan: pd.DataFrame
) -> tuple[pd.DataFrame, list[str]]:
    """Keep one row per cell and seed: the planned configuration's, else the newest.

    Tables that other programs wrote may lack a column for what tells two rows apart; their mean
    would mean nothing.
    """
    planned = set(plan.get("cell", []))
    order = pd.DataFrame(index=table.index)
    order["planned"] = table["cell"].isin(planned)
    finished = table.get("finished_at", pd.Series("", table.index)).astype(object)
    order["finished"] = finished.fillna("").astype(str)
    newest_last = table.loc[order.sort_values(["planned", "finished"], kind="stable").index]
    kept = newest_last.drop_duplicates([*keys, "seed"], keep="last").sort_index()
    kept = confirmed.marked(kept, plan, keys)
    notes = []
    if dropped := len(table) - len(kept):
        rows = "1 row" if dropped == 1 else f"{dropped} rows"
        notes.append(
            f"{rows} of the table left out: same cell and seed, but another configuration or older"
        )
    if planned and (others := int((~kept["cell"].isin(planned) & ~kept["further"]).sum())):
        rows = "1 row has a configuration" if others == 1 else f"{others} rows have configurations"
        notes.append(f"{rows} other than the experiment plans today")
    return kept.reset_index(drop=True), notes + confirmed.note(kept)


def _summary(runs: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return a row per cell from a row per planned or recorded seed."""
    runs = runs.assign(
        done=runs["status"] == "done",
        rank=runs["status"].map(STATES.index),
        asked=~runs["further"].eq(True),
    )
    names = ["answer_accuracy", "answer_accuracy_low", "answer_accuracy_high", "chain_exact_match"]
    for name in [*names, *MEASURES]:
        values = runs[name] if name in runs else pd.Series(np.nan, runs.index)
        runs[name] = pd.to_numeric(values).astype(float)
    runs[names] = runs[names].where(runs["done"], axis=0)
    groups = runs.groupby(keys, sort=True)
    cells = groups.agg(
        rank=("rank", "min"),
        accuracy=("answer_accuracy", "mean"),
        accuracy_min=("answer_accuracy", "min"),
        accuracy_max=("answer_accuracy", "max"),
        accuracy_low=("answer_accuracy_low", "min"),
        accuracy_high=("answer_accuracy_high", "max"),
        chain_exact_match=("chain_exact_match", "mean"),
        seeds=("done", "sum"),
        seeds_planned=("asked", "sum"),
    )
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


def is_unsure(cell: Any) -> bool:
    """Tell whether 90 % lies between the ends of its seeds' 95 % intervals, or of the seeds."""
    low = np.fmin(cell.accuracy_low, cell.accuracy_min)
    high = np.fmax(cell.accuracy_high, cell.accuracy_max)
    return bool(cell.state == "done" and low < THRESHOLD <= high)
