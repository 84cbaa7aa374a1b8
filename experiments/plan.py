"""A sweep: which cells are done, running, failed or missing.

The state of a sweep is the state of its cells on disk, so any number of sweeps may be started,
killed and started again, here or on a cluster that shares the folders.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from common import UserError
from experiments.grid import Cell, Experiment, cells, matches
from experiments.names import flat
from experiments.runs import Run
from experiments.table import read_table, upsert


@dataclass
class Planned:
    """A cell and its status: done, running, failed, unfinished or missing."""

    cell: Cell
    run: Run
    status: str
    reason: str | None = None


class Sweep:
    """One experiment's cells, planned against runs/ and the results table."""

    def __init__(
        self,
        experiment: Experiment,
        results_dir: str = "outputs",
        runs_dir: str = "runs",
        overrides: Sequence[str] = (),
        only: Mapping[str, Any] | None = None,
        retry_failed: bool = False,
    ) -> None:
        self.experiment = experiment
        self.folder = Path(results_dir) / experiment.name
        self.retry_failed = retry_failed
        # The sweep enters rows and shows progress itself.
        own = [f"experiment_name={quoted(experiment.name)}", f"runs_dir={quoted(runs_dir)}"]
        own += ["enter=false", "progress=false"]
        every = cells(experiment, [*overrides, *own])
        wanted = {key: value for key, value in flat(only or {}).items() if value is not None}
        self.cells = [cell for cell in every if matches(_columns(cell), wanted)]
        if not self.cells:
            raise UserError(_nothing_matches(every, wanted))
        self.runs = {cell.name: Run(runs_dir, cell.run) for cell in self.cells}

    def plan(self) -> list[Planned]:
        """Return the status of every cell now."""
        table = read_table(self.folder)
        rows = dict(zip(table["cell"], table["status"], strict=True))
        return [self._planned(cell, rows) for cell in self.cells]

    def _planned(self, cell: Cell, rows: Mapping[str, str]) -> Planned:
        run = self.runs[cell.name]
        record = run.record(cell.name)
        row = record["row"] if record else {"status": rows.get(cell.name, "missing")}
        if rows.get(cell.name) == "done" or row["status"] == "done":
            return Planned(cell, run, "done")
        if run.is_running():
            return Planned(cell, run, "running")
        return Planned(cell, run, row["status"], row.get("reason"))

    def to_launch(self, plan: Iterable[Planned]) -> list[Planned]:
        """Return the cells to run: neither done nor running; failed ones with ``retry_failed``."""
        wanted = {"missing", "unfinished"} | ({"failed"} if self.retry_failed else set())
        return [planned for planned in plan if planned.status in wanted]

    def open_cells(self) -> list[Planned]:
        """Return the cells to run now."""
        return self.to_launch(self.plan())

    def enter(self, chosen: Iterable[Cell] | None = None) -> pd.DataFrame:
        """Enter the records in runs/ into the results table; return the table."""
        cells = self.cells if chosen is None else chosen
        records = [self.runs[cell.name].record(cell.name) for cell in cells]
        if any(records):
            upsert(self.folder, [record for record in records if record])
        return read_table(self.folder)


def one_of_each_training(planned: Iterable[Planned]) -> list[Planned]:
    """Return one cell of each training; the others measure it once it has ended."""
    return list({one.cell.run: one for one in reversed(list(planned))}.values())[::-1]


def counts(plan: Iterable[Planned]) -> str:
    """Return e.g. "12 done, 3 missing"."""
    number = Counter(planned.status for planned in plan)
    return ", ".join(f"{count} {status}" for status, count in sorted(number.items()))


def quoted(value: Any) -> str:
    """Return ``value`` as Hydra's override grammar writes it."""
    if value is None or isinstance(value, bool | int | float):
        return "null" if value is None else str(value).lower()
    return "'" + str(value).replace("'", "\\'") + "'"


def _columns(cell: Cell) -> dict[str, Any]:
    return {**cell.settings, **cell.identity, "cell": cell.name}


def _nothing_matches(every: Sequence[Cell], only: Mapping[str, Any]) -> str:
    rows = [_columns(cell) for cell in every]
    for key, wanted in only.items():
        there = {row[key] for row in rows if key in row}
        if not there & set(wanted if isinstance(wanted, list) else [wanted]):
            numbers = sorted(value for value in there if isinstance(value, int | float))
            others = sorted(str(value) for value in there if not isinstance(value, int | float))
            known = ", ".join(map(str, [*numbers, *others])) or "no such key"
            return f"only.{key}={wanted}: no cell matches; there are {known}"
    return f"only={dict(only)}: no cell matches all of these"
