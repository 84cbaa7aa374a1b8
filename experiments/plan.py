"""A sweep: which cells are done, running, failed or missing.

Its state is that of its cells on disk, so any number of sweeps can be started, killed and
restarted, here or on a cluster that shares the folders.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from common import UserError
from experiments.d90 import passes
from experiments.grid import Cell, Experiment, cells, matches, quoted
from experiments.table import read_table, upsert

AGREE = 3  # seeds


@dataclass
class CellStatus:
    """A cell and its status: done, running, waiting (for another cell of its training run), failed,
    unfinished or missing."""

    cell: Cell
    status: str
    reason: str = ""
    accuracy: float = math.nan


class Sweep:
    """An experiment's cells, planned against runs/ and the results table."""

    def __init__(
        self,
        experiment: Experiment,
        results_dir: str = "outputs",
        runs_dir: str = "runs",
        overrides: Sequence[str] = (),
        only: Mapping[str, Any] | None = None,
        retry_failed: bool = False,
        frontier: bool = False,
    ) -> None:
        self.experiment, self.frontier = experiment, frontier
        self.folder = Path(results_dir) / experiment.name
        self.to_run = {"missing", "unfinished"} | ({"failed"} if retry_failed else set())
        # The sweep enters rows and shows progress itself.
        own = [f"experiment_name={quoted(experiment.name)}", f"runs_dir={quoted(runs_dir)}"]
        every = cells(experiment, [*overrides, *own, "enter=false", "progress=false"])
        require_known(only or {}, every)
        self.cells = [cell for cell in every if matches(cell.columns, only or {})]
        if not self.cells:
            raise UserError(f"only={only}: no cell matches all of these")

    def plan(self) -> list[CellStatus]:
        """The status of every cell now."""
        table = read_table(self.folder).set_index("cell")[["status", "answer_accuracy", "reason"]]
        rows: Any = table.to_dict("index")
        found = [_planned(cell, rows.get(cell.name, {"status": "missing"})) for cell in self.cells]
        failed = {
            p.cell.run.name: p.reason
            for p in found
            if p.cell.record and p.status == "failed" and p.cell.run.training() is None
        }
        for planned in found:
            if planned.status == "missing" and planned.cell.run.name in failed:
                planned.status, planned.reason = "failed", failed[planned.cell.run.name]
        return found

    def wanted(self, plan: Sequence[CellStatus]) -> list[CellStatus]:
        """Those that are not done; with `frontier`, those at the next D of every group
        (`next_of_group`), up to one step above the first that passes. A failed cell stops it."""
        if not self.frontier:
            return [p for p in plan if p.status != "done"]
        accuracies = {p.cell.name: p.accuracy for p in plan if p.status == "done"}
        ahead = {c.name for group in groups(self.cells) for c in next_of_group(group, accuracies)}
        return [p for p in plan if p.cell.name in ahead]

    def open_cells(self) -> list[Cell]:
        """Wanted cells that are not running; failed ones only if `retry_failed`."""
        return [p.cell for p in self.wanted(self.plan()) if p.status in self.to_run]

    def enter_records(self, chosen: Sequence[Cell] | None = None) -> pd.DataFrame:
        """Enter the records in runs/ into the results table; returns the table."""
        cells = self.cells if chosen is None else chosen
        upsert(self.folder, [record for cell in cells if (record := cell.record)])
        return read_table(self.folder)


def _planned(cell: Cell, row: Mapping[str, Any]) -> CellStatus:
    if row["status"] != "done":
        row = (cell.record or {"row": row})["row"]
    if row["status"] == "done":
        return CellStatus(cell, "done", accuracy=row["answer_accuracy"])
    if cell.run.is_running():
        mine = cell.run.progress().get("cell") == cell.name
        return CellStatus(cell, "running" if mine else "waiting")
    reason = row.get("reason")  # NaN in a table
    return CellStatus(cell, row["status"], reason if isinstance(reason, str) else "")


def groups(cells: Sequence[Cell]) -> list[dict[int, list[Cell]]]:
    """The cells by ascending D of each group of cells that differ only in D and seed."""
    found: dict[str, dict[int, list[Cell]]] = {}
    for cell in sorted(cells, key=lambda cell: cell.identity["dim"]):
        found.setdefault(cell.group, {}).setdefault(cell.identity["dim"], []).append(cell)
    return list(found.values())


def next_of_group(
    group: Mapping[int, Sequence[Cell]], accuracies: Mapping[str, float]
) -> list[Cell]:
    """The cells to run at the next D: seeds until three agree on whether it passes."""
    passed = False
    for at_dim in group.values():
        known = [accuracies[cell.name] for cell in at_dim if cell.name in accuracies]
        won = sum(map(passes, known))
        missing = [cell for cell in at_dim if cell.name not in accuracies]
        if needed := missing[: max(0, AGREE - max(won, len(known) - won))]:
            return needed
        if passed:
            return []
        passed = passes(statistics.median(known))
    return []


def one_of_each_training(cells: Iterable[Cell]) -> list[Cell]:
    """The first cell of each training run; the others evaluate it once it has ended."""
    found: dict[str, Cell] = {}
    for cell in cells:
        found.setdefault(cell.run.name, cell)
    return list(found.values())


def counts(plan: Iterable[CellStatus]) -> str:
    """E.g. "12 done, 3 missing"."""
    number = Counter(planned.status for planned in plan)
    return ", ".join(f"{count} {status}" for status, count in sorted(number.items()))


def require_known(only: Mapping[str, Any], cells: Sequence[Cell]) -> None:
    """Raise UserError for a filter's key or value that no cell has."""
    for key, wanted in only.items():
        known = {str(cell.columns[key]): cell.columns[key] for cell in cells if key in cell.columns}
        if not known:
            raise UserError(f"only.{key}={wanted}: no cell has this key")
        several = isinstance(wanted, list) and wanted not in known.values()
        for value in wanted if several else [wanted]:
            if value not in (None, *known.values()):  # None: cells without it
                values = ", ".join(sorted(known, key=lambda text: (len(text), text)))
                raise UserError(f"only.{key}={value}: no cell matches; values: {values}")
