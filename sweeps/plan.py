"""A sweep: which cells are done, running, failed or missing.

The state of a sweep is nothing but the state of its cells on disk, so any number of sweeps may
be started, killed, and started again, here or on a cluster that shares the folders.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from common import UserError, require_writable
from config.columns import described, settings_of
from config.grid import Cell, Experiment, cells
from records.folders import CellFolder, WeightsFolder
from records.table import enter, merge, read_table, table_path
from sweeps.slurm_queue import living

KEPT = ("done", "running")


@dataclass
class Planned:
    """A cell and how it stands: done, running, queued, failed, unfinished or missing."""

    cell: Cell
    folder: CellFolder
    status: str
    reason: str | None = None


class Sweep:
    """One experiment's cells, planned against the runs on this machine and the results table.

    ``cells`` are the grid's and those added since.  ``candidates`` are cells that a search may ask
    for; each is added as soon as anyone has begun it.
    """

    def __init__(
        self,
        experiment: Experiment,
        results_dir: str = "results",
        runs_dir: str = "runs",
        overrides: Sequence[str] = (),
        only: Mapping[str, Any] | None = None,
        retry_failed: bool = False,
        remeasure: bool = False,
    ) -> None:
        self.experiment = experiment
        self.results_dir = Path(results_dir)
        self.runs_dir = Path(runs_dir)
        settings = (
            f"experiment_name={quoted(experiment.name)}",
            f"results_dir={quoted(results_dir)}",
            f"runs_dir={quoted(runs_dir)}",
            "under_sweep=true",
            "progress=false",
        )
        every = cells(experiment, [*overrides, *settings])
        if not every:
            raise UserError(f"experiment {experiment.name}: exclude leaves out all of its grid")
        self.grid_cells = [cell for cell in every if _matches(cell, only or {})]
        if not self.grid_cells:
            raise UserError(_nothing_matches(every, only or {}))
        self.cells: list[Cell] = []
        self.folders: dict[str, CellFolder] = {}
        self.candidates: list[Cell] = []
        self.add(self.grid_cells)
        self.retry_failed = retry_failed
        self.remeasure = remeasure

    def add(self, cells: Iterable[Cell]) -> None:
        """Take further cells in, beside the grid's; those that are in already stay once."""
        for cell in cells:
            if cell.name not in self.folders:
                self.cells.append(cell)
                self.folders[cell.name] = CellFolder(self.runs_dir, cell.name)

    def _add_begun(self) -> None:
        if self.candidates:
            begun = set(self.table()["cell"])
            if self.runs_dir.is_dir():
                begun |= {folder.name for folder in self.runs_dir.iterdir()}
            self.add(cell for cell in self.candidates if cell.name in begun)

    def plan(self) -> list[Planned]:
        """Return how each cell stands now."""
        self._add_begun()
        table = self.table()
        rows = {} if self.remeasure else dict(zip(table["cell"], table["status"], strict=True))
        plan = [self._stand(cell, rows) for cell in self.cells]
        _mark_queued([planned for planned in plan if planned.status not in KEPT])
        return plan

    def _stand(self, cell: Cell, rows: dict[str, str]) -> Planned:
        folder = self.folders[cell.name]
        record = folder.record()
        if (record and record["status"] == "done") or rows.get(cell.name) == "done":
            return Planned(cell, folder, "done")
        if folder.is_running():
            return Planned(cell, folder, "running")
        if record:
            return Planned(cell, folder, record["status"], record.get("reason"))
        damaged = folder.stamp() is not None
        return Planned(cell, folder, "missing", "its record is damaged" if damaged else None)

    def to_launch(self, plan: Iterable[Planned]) -> list[Planned]:
        """Return the cells that a launch would run."""
        wanted = {"missing", "unfinished"} | ({"failed"} if self.retry_failed else set())
        return [planned for planned in plan if planned.status in wanted]

    def require_writable(self) -> None:
        """Raise now rather than after hours when results could not be kept."""
        require_writable(self.results_dir / self.experiment.name, "results_dir")
        require_writable(self.runs_dir, "runs_dir")

    def table(self) -> pd.DataFrame:
        """Return the results table as it is."""
        return read_table(table_path(self.results_dir, self.experiment.name))

    def enter(self) -> pd.DataFrame:
        """Merge the records of this machine into the results table; return the table."""
        self._add_begun()
        return enter(self.results_dir, self.experiment.name, self.folders.values())

    def not_taken(self, table: pd.DataFrame) -> list[str]:
        """Return a line for every cell measured here whose row stays: it was finished later."""
        rows = dict(zip(table["cell"], table["finished_at"].astype(str), strict=True))
        found = {name: folder.record() for name, folder in self.folders.items() if name in rows}
        return [
            f"cell {name}: measured here at {record['finished_at']}, by the clocks before its row, "
            f"{rows[name]}; the row stays"
            for name, record in found.items()
            if record and record["status"] == "done" and record["finished_at"] < rows[name]
        ]

    def merge(self, folders: Iterable[CellFolder]) -> None:
        """Merge the records of these cells into the results table."""
        merge(self.results_dir, self.experiment.name, folders)


def waves(chosen: Sequence[Planned]) -> list[list[Planned]]:
    """Return ``chosen`` in the order of launching: one cell of each weights first, which trains
    them; then the cells that only measure what is there by then."""
    first: dict[str, Planned] = {}
    for planned in chosen:
        folder = WeightsFolder(planned.folder.folder.parent, planned.cell.weights)
        if folder.record() is None:
            first.setdefault(planned.cell.weights, planned)
    leading = {planned.cell.name for planned in first.values()}
    rest = [planned for planned in chosen if planned.cell.name not in leading]
    return [wave for wave in (list(first.values()), rest) if wave]


def counts(plan: Iterable[Planned]) -> str:
    """Return in words how many cells stand how."""
    number = Counter(planned.status for planned in plan)
    return ", ".join(f"{count} {status}" for status, count in sorted(number.items()))


def _mark_queued(open_cells: Sequence[Planned]) -> None:
    """Find the cells whose jobs a batch system still has, whoever submitted them."""
    tickets = [(planned, planned.folder.ticket()) for planned in open_cells]
    named = [(p, (t["slurm_job_name"], t["array_index"])) for p, t in tickets if t]
    alive = living(name for _, (name, _) in named)
    for planned, job in named:
        if alive is None or job in alive:
            planned.status = "queued"
            planned.reason = "squeue does not answer" if alive is None else f"job {job[0]}"


def _matches(cell: Cell, only: Mapping[str, Any]) -> bool:
    """Tell whether the cell has, in every column that ``only`` names, one of its values."""
    columns = described(cell.config) | {"cell": cell.name}
    if not only.keys() <= columns.keys():
        columns = settings_of(cell.resolved) | columns
    return all(
        columns.get(key) in (wanted if isinstance(wanted, list) else [wanted])
        for key, wanted in only.items()
    )


def _by_number(value: str) -> tuple[float, str]:
    """Return a key that sorts numbers by their size, before all else."""
    try:
        return float(value), value
    except ValueError:
        return math.inf, value


def _nothing_matches(every: Sequence[Cell], only: Mapping[str, Any]) -> str:
    columns = [settings_of(cell.resolved) | described(cell.config) for cell in every]
    for key, wanted in only.items():
        there = sorted({str(row[key]) for row in columns if key in row}, key=_by_number)
        if not there:
            return f"only.{key}: no cell has a setting of that name"
        if not {str(v) for v in (wanted if isinstance(wanted, list) else [wanted])} & set(there):
            return f"only.{key}={wanted}: no cell matches; there are {', '.join(there) or 'none'}"
    return f"only={dict(only)}: no cell has all of these; matches are of one or the other"


def quoted(value: Any) -> str:
    """Return ``value`` as Hydra's override grammar writes it."""
    if value is None:
        return "null"
    if isinstance(value, bool | int | float):
        return str(value).lower()
    return "'" + str(value).replace("'", "\\'") + "'"
