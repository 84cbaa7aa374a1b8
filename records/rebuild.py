"""Rebuilding an experiment's table from what ``runs/`` holds, and from its own sound rows."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from common import UserError, did_you_mean, write_bytes
from config.identity import RESULTS_VERSION
from records.elsewhere import copied, rows_elsewhere
from records.folders import CellFolder
from records.reading import (
    ATTACHMENT_COLUMNS,
    attachment_is_whole,
    attachment_path,
    lines,
    require_columns,
    require_rows,
)
from records.table import Row, replaces, take_in, writing

Record = tuple[CellFolder, dict[str, Any]]


@dataclass
class Rebuilt:
    """How many rows are from records, kept, or from other tables, and what was left out."""

    from_runs: int
    kept: int
    from_tables: int
    left_out: list[str]


def rebuild(
    results_dir: str | Path, runs_dir: str | Path, experiment: str, also: Iterable[str] = ()
) -> Rebuilt:
    """Write the experiment's table anew from the records of its cells.

    Its cells are those that ran under its name, those that the old table names, and ``also``.  A
    sound row without a record here, measured elsewhere, stays; any other is left out and told.
    Cells that neither has done come from the other tables in ``results_dir``, where they are done.
    The old table, and altered files beside it, are kept in ``.before/``.  Raises `UserError` where
    there is neither a sound row nor a record.
    """
    folder, runs = Path(results_dir) / experiment, Path(runs_dir)
    also = set(also)
    if not folder.exists():
        _sources(folder, runs, also, [])  # where there are none, no folder is made
    with writing(folder):
        return _rebuild_locked(folder, runs, also)


def _rebuild_locked(folder: Path, runs: Path, also: set[str]) -> Rebuilt:
    left_out: list[str] = []
    rows, records, borrowed = _sources(folder, runs, also, left_out)
    _keep_aside(folder, folder / "results.csv", move=False)
    own = {n: pair for n, pair in records.items() if n not in borrowed}
    fresh = {n: pair for n, pair in own.items() if _taken(pair[1], rows.get(n))}
    kept = {n: row for n, row in rows.items() if n not in {*fresh, *borrowed}}
    for name, row in kept.items():
        kept[name] = _without_altered_files(folder, name, row, left_out)
    taken = {n: copied(row, source, folder) for n, (row, source) in borrowed.items()}
    take_in(folder, kept | taken, fresh)
    return Rebuilt(len(fresh), len(kept), len(taken), left_out)


def _sources(
    folder: Path, runs: Path, also: set[str], left_out: list[str]
) -> tuple[dict[str, Row], dict[str, Record], dict[str, tuple[Row, Path]]]:
    """Return sound rows, records, and rows of other tables, by cell.

    What is not sound is added to ``left_out``.  Raises `UserError` where there is nothing.
    """
    rows = _sound_rows(folder / "results.csv", left_out)
    names = {*also, *rows, *_cells_named(runs, folder.name)}
    cells = [CellFolder(runs, name) for name in sorted(names)]
    records = {cell.name: (cell, record) for cell in cells if (record := cell.record())}
    done = {name for name, row in rows.items() if row["status"] == "done"}
    done |= {name for name, (_, record) in records.items() if record["status"] == "done"}
    borrowed = rows_elsewhere(folder, names - done)
    if not rows and not records and not borrowed:
        others = [path.parent.name for path in folder.parent.glob("*/results.csv")]
        meant = "" if also else did_you_mean(folder.name, {*others} - {folder.name})
        told = f"no sound row in a table here, and no record of it in {runs}{meant}"
        raise UserError(f"{folder}: {told}")
    return rows, records, borrowed


def _taken(record: dict[str, Any], row: Row | None) -> bool:
    """Tell whether the record takes the row's place: unless the row was finished later."""
    return replaces(record, row) or record["finished_at"] == (row or {}).get("finished_at")


def _sound_rows(path: Path, left_out: list[str]) -> dict[str, Row]:
    """Return the rows that a reader accepts; of two of one cell, the one finished later."""
    rows: dict[str, Row] = {}
    try:
        text = path.read_bytes().decode(errors="replace")
    except FileNotFoundError:
        return rows
    for number, fault, row in lines(text):
        try:
            if fault:
                raise UserError(fault)
            table = pd.DataFrame([row], dtype=object).replace("", None)
            require_columns(table, path)
            require_rows(table, path)
        except UserError as error:
            told = str(error).removeprefix(f"{path}, line 2: ")
            left_out.append(f"{path}, line {number}: {told}")
            continue
        known = rows.get(row["cell"])
        if known is None or row.get("finished_at", "") > known.get("finished_at", ""):
            rows[row["cell"]] = row
    return rows


def _cells_named(runs: Path, experiment: str) -> list[str]:
    """Return the cells of this version of the code that ran under the experiment's name."""
    found = []
    for path in sorted(runs.glob("*/record.json")):
        config = CellFolder(runs, path.parent.name).config()
        named = config.get("experiment_name") == experiment
        if named and config.get("results_version") == RESULTS_VERSION:
            found.append(path.parent.name)
    return found


def _without_altered_files(folder: Path, name: str, row: Row, left_out: list[str]) -> Row:
    """Return the row without the digests of files that are altered, and move these away."""
    row = dict(row)
    for column, (kind, suffix) in ATTACHMENT_COLUMNS.items():
        path = attachment_path(folder, kind, f"{name}{suffix}")
        if path and row.get(column) and not attachment_is_whole(path, row[column]):
            _keep_aside(folder, path, move=True)
            left_out.append(f"{path}: altered since it was written")
            row[column] = ""
    return row


def _keep_aside(folder: Path, path: Path, move: bool) -> None:
    """Copy or move a file to ``.before/``, under the time."""
    if path.exists():
        aside = folder / ".before" / f"{time.time_ns()}-{path.name}"
        write_bytes(aside, path.read_bytes())
        if move:
            path.unlink()
