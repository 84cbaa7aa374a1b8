"""The store: one folder per cell under ``runs/``, one table per experiment under ``results/``.

``runs/<cell>/`` belongs to this machine and is shared by all experiments::

    config.yaml     resolved configuration         record.json     the result, written once, last
    checkpoint.pt   latest state of training       curve.csv       learning curve
    errors.json     where chains break             progress.json   heartbeat of a running cell
    lock            held while a process works on the cell; the system frees it on any death
    queued.json     the ticket of the cell's latest job in a batch system

``results/<experiment>/`` is what one commits: ``results.csv`` with ``configs/``, ``curves/`` and
``errors/`` beside it.  Rows come from records in any order and from any machine; a row once
entered stays until a newer record of the same cell replaces it.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import filelock
import pandas as pd

from config.identity import cell_name
from config.schema import CellConfig
from errors import RunError, UserError
from files import clear_disk_errors, write_atomically, write_text

COLUMNS = """
task size format max_len model layers heads dim seed recipe status reason stopped
answer_accuracy answer_accuracy_low answer_accuracy_high chain_exact_match n_test
steps steps_to_90 seconds_to_90 train_seconds eval_seconds params
flops_linear_layers flops_total flops_training state_bytes padded_share precision device
hostname torch_version data_fingerprint cell commit tree_dirty finished_at
""".split()
SORT = ["task", "format", "size", "model", "layers", "dim", "recipe", "seed", "cell"]
INTEGERS = set(
    """
max_len heads n_test steps steps_to_90 params flops_linear_layers flops_total flops_training
state_bytes
""".split()
)
STATUSES = ("done", "failed", "unfinished")
LOCK_PATIENCE_SECONDS = 1.0
ATTACHMENTS = (
    ("config.yaml", "configs", ".yaml"),
    ("curve.csv", "curves", ".csv"),
    ("errors.json", "errors", ".json"),
)


class Run:
    """The folder of one cell."""

    def __init__(self, runs_dir: str | Path, cell: str) -> None:
        self.cell = cell
        self.folder = Path(runs_dir) / cell
        self._lock: filelock.BaseFileLock | None = None

    @classmethod
    def of(cls, config: CellConfig) -> Run:
        """Return the run of the cell that ``config`` describes."""
        return cls(config.runs_dir, cell_name(config))

    def acquire(self) -> bool:
        """Take the cell for this process; False when another process works on it.

        A second's patience, because `is_running` of another process holds the lock for an instant.
        """
        self._lock = filelock.FileLock(self.folder / "lock", is_singleton=False)
        with clear_disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                self._lock.acquire(timeout=LOCK_PATIENCE_SECONDS, poll_interval=0.02)
            except filelock.Timeout:
                return False
            _remove_leftovers(self.folder)
        return True

    def release(self) -> None:
        """Give the cell back."""
        if self._lock is not None:
            self._lock.release()

    def is_running(self) -> bool:
        """Tell whether a living process holds the cell."""
        if not (self.folder / "lock").exists():
            return False
        probe = filelock.FileLock(self.folder / "lock", timeout=0, is_singleton=False)
        try:
            with probe:
                return False
        except filelock.Timeout:
            return True
        except OSError:  # read-only for us: nobody here can hold it
            return False

    def record(self) -> dict[str, Any] | None:
        """Return the record, or None when there is none that this version understands.

        A damaged one, one of another cell and one without a known status count as none: the cell
        is measured again.
        """
        content = _read_json(self.folder / "record.json")
        if content is None or content.get("cell") != self.cell:
            return None
        known = content.get("status") in STATUSES and isinstance(content.get("finished_at"), str)
        measured = content.get("status") != "done" or "answer_accuracy" in content
        return content if known and measured else None

    def stamp(self) -> int | None:
        """Return a number that changes whenever a record is written; None without one."""
        return _modified(self.folder / "record.json")

    def last_start(self) -> int | None:
        """Return a number that changes whenever a process starts on the cell; None before."""
        return _modified(self.folder / "config.yaml")

    def write_ticket(self, ticket: dict[str, Any]) -> None:
        """Note the job that is about to be submitted for this cell."""
        write_text(self.folder / "queued.json", json.dumps(ticket) + "\n")

    def ticket(self) -> dict[str, Any] | None:
        """Return the latest job's ticket; whether that job still waits is the queue's to say."""
        return _read_json(self.folder / "queued.json")

    def progress(self) -> dict[str, Any] | None:
        """Return the last heartbeat."""
        return _read_json(self.folder / "progress.json")

    def write_config(self, plain: dict[str, Any]) -> None:
        """Write the resolved configuration; without PyYAML as JSON, which YAML contains."""
        try:
            import yaml
        except ImportError:
            text = json.dumps(plain, indent=1) + "\n"
        else:
            text = yaml.safe_dump(plain, sort_keys=False)
        write_text(self.folder / "config.yaml", text)

    def write_record(self, record: dict[str, Any]) -> None:
        """Write the record: the last thing a cell does."""
        write_text(self.folder / "record.json", json.dumps(record, indent=1) + "\n")

    def write_progress(self, **values: Any) -> None:
        """Write a heartbeat for whoever watches; `updated` is for people, nothing relies on it."""
        write_text(self.folder / "progress.json", json.dumps({**values, "updated": time.time()}))


def _remove_leftovers(folder: Path) -> None:
    """Remove what killed processes were writing; the caller holds the lock of all writers.

    Tickets are written by sweeps, which do not hold the cell's lock.
    """
    for leftover in folder.glob(".*.tmp"):
        if not leftover.name.startswith(".queued.json."):
            leftover.unlink(missing_ok=True)


def _modified(path: Path) -> int | None:
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116 - 10,000 of them a second
    except OSError:
        return None


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def read_table(path: Path) -> pd.DataFrame:
    """Return a results table with every known column; missing file: an empty table.

    Raises `UserError` when the file is there but is not a results table.
    """
    if not path.exists():
        return pd.DataFrame(columns=COLUMNS)
    try:
        table = pd.read_csv(
            path,
            dtype={"cell": str, "commit": str, "reason": str},
            na_values=[""],
            keep_default_na=False,
        )
    except (OSError, ValueError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path}: not a readable results table ({error}); restore it from git "
            "or delete it to rebuild it from the runs"
        ) from None
    missing = {"cell", "status", "task", "size", "model", "dim"} - set(table.columns)
    if missing:
        raise UserError(f"{path}: not a results table, lacks {', '.join(sorted(missing))}")
    return table.reindex(columns=[*COLUMNS, *(c for c in table.columns if c not in COLUMNS)])


def enter(results_dir: str | Path, experiment: str, runs: Iterable[Run]) -> pd.DataFrame:
    """Merge the records of ``runs`` into the experiment's table and return the table."""
    merge(results_dir, experiment, runs)
    return read_table(Path(results_dir) / experiment / "results.csv")


def merge(results_dir: str | Path, experiment: str, runs: Iterable[Run]) -> None:
    """Merge the records of ``runs`` into the experiment's table.

    Many processes may do so at once: the merge holds a lock, and the file is replaced whole.
    Rows that stay keep their text to the byte.
    """
    folder = Path(results_dir) / experiment
    records = {run.cell: (run, record) for run in runs if (record := run.record())}
    if not records:
        return
    with clear_disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with filelock.FileLock(folder / ".lock", timeout=120):
                _merge_locked(folder, records)
        except filelock.Timeout:
            raise RunError(f"{folder / '.lock'}: held by another process for two minutes") from None


def _merge_locked(folder: Path, records: dict[str, tuple[Run, dict[str, Any]]]) -> None:
    for place in (folder, *(folder / name for _, name, _ in ATTACHMENTS)):
        _remove_leftovers(place)
    path = folder / "results.csv"
    rows = _text_rows(path)
    changed = {c: pair for c, pair in records.items() if _replaces(pair[1], rows.get(c))}
    if not changed:
        return
    for cell, (run, record) in changed.items():
        rows[cell] = {column: _text(record.get(column)) for column in COLUMNS}
        _copy_attachments(run, folder)
    table = pd.DataFrame(list(rows.values()), dtype=object).fillna("")
    table = table.sort_values(SORT, kind="stable", key=_sortable)
    write_atomically(path, lambda temporary: table.to_csv(temporary, index=False))


def _text_rows(path: Path) -> dict[str, dict[str, str]]:
    """Return the rows of a results table by cell, every value as the text that stands there."""
    read_table(path)  # refuses what is not a results table
    if not path.exists():
        return {}
    text = pd.read_csv(path, dtype=str, keep_default_na=False)
    for column in INTEGERS & set(text.columns):
        text[column] = text[column].str.removesuffix(".0")
    return {str(row["cell"]): cast("dict[str, str]", row) for row in text.to_dict("records")}


def _text(value: Any) -> str:
    if value is None or value != value:
        return ""
    return repr(value) if isinstance(value, float) else str(value)


def _sortable(column: pd.Series) -> pd.Series:
    numbers = ("size", "layers", "dim", "seed")
    return pd.to_numeric(column) if column.name in numbers else column


def _replaces(record: dict[str, Any], row: dict[str, str] | None) -> bool:
    """Tell whether ``record`` takes the place of ``row``.

    A finished cell is never replaced by an unfinished one, whatever the clocks say; of two
    finished measurements the later one stays.
    """
    if row is None:
        return True
    if (row["status"] == "done") != (record["status"] == "done"):
        return bool(record["status"] == "done")
    finished_at = row.get("finished_at", "")
    if record["status"] == "done":
        return bool(record["finished_at"] > finished_at)
    return bool(record["finished_at"] != finished_at)


def _copy_attachments(run: Run, folder: Path) -> None:
    for source, place, suffix in ATTACHMENTS:
        if (run.folder / source).exists():
            target = folder / place / f"{run.cell}{suffix}"
            write_atomically(target, functools.partial(shutil.copyfile, run.folder / source))
