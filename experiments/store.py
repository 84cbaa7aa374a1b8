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
from typing import Any

import filelock
import pandas as pd
import yaml

from errors import RunError, UserError
from experiments.identity import cell_name
from experiments.schema import CellConfig
from training.files import clear_disk_errors, write_atomically, write_text

COLUMNS = """
task size format max_len model layers heads dim seed recipe status reason stopped
answer_accuracy answer_accuracy_low answer_accuracy_high chain_exact_match n_test
steps steps_to_90 seconds_to_90 train_seconds eval_seconds params
flops_linear_layers flops_total flops_training state_bytes padded_share precision device
hostname torch_version data_fingerprint cell commit tree_dirty finished_at
""".split()
SORT = ["task", "format", "size", "model", "layers", "dim", "recipe", "seed", "cell"]
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
        """Write the resolved configuration."""
        write_text(self.folder / "config.yaml", yaml.safe_dump(plain, sort_keys=False))

    def write_record(self, record: dict[str, Any]) -> None:
        """Write the record: the last thing a cell does."""
        write_text(self.folder / "record.json", json.dumps(record, indent=1) + "\n")

    def write_progress(self, **values: Any) -> None:
        """Write a heartbeat for whoever watches; `updated` is for people, nothing relies on it."""
        write_text(self.folder / "progress.json", json.dumps({**values, "updated": time.time()}))


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
    """Merge the records of ``runs`` into the experiment's table and return the table.

    Many processes may do so at once: the merge holds a lock, and the file is replaced whole.
    """
    folder = Path(results_dir) / experiment
    records = {run.cell: (run, record) for run in runs if (record := run.record())}
    if not records:
        return read_table(folder / "results.csv")
    with clear_disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(folder / ".lock", timeout=120):
            return _enter_locked(folder, records)
    except filelock.Timeout:
        raise RunError(f"{folder / '.lock'}: held by another process for two minutes") from None


def _enter_locked(folder: Path, records: dict[str, tuple[Run, dict[str, Any]]]) -> pd.DataFrame:
    table = read_table(folder / "results.csv")
    columns = (table[name].tolist() for name in ("cell", "status", "finished_at"))
    rows = {cell: (status, str(time)) for cell, status, time in zip(*columns, strict=True)}
    changed = {
        cell: (run, record)
        for cell, (run, record) in records.items()
        if _replaces(record, rows.get(cell))
    }
    if changed:
        table = _merged(table, [record for _, record in changed.values()])
        for run, _ in changed.values():
            _copy_attachments(run, folder)
        write_atomically(folder / "results.csv", lambda path: table.to_csv(path, index=False))
    return table


def _replaces(record: dict[str, Any], row: tuple[str, str] | None) -> bool:
    """Tell whether ``record`` takes the place of ``row``, given as (status, finished_at).

    A finished cell is never replaced by an unfinished one, whatever the clocks say; of two
    finished measurements the later one stays.
    """
    if row is None:
        return True
    status, finished_at = row
    if (status == "done") != (record["status"] == "done"):
        return record["status"] == "done"
    if status == "done":
        return record["finished_at"] > finished_at
    return record["finished_at"] != finished_at


def _merged(table: pd.DataFrame, records: list[dict[str, Any]]) -> pd.DataFrame:
    kept = table[~table["cell"].isin([record["cell"] for record in records])]
    fresh = pd.DataFrame(records).reindex(columns=table.columns).astype(object)
    parts = [part.astype(object) for part in (kept, fresh) if len(part)]
    whole = pd.concat(parts, ignore_index=True) if parts else table
    return whole.sort_values(SORT, kind="stable", ignore_index=True)


def _copy_attachments(run: Run, folder: Path) -> None:
    for source, place, suffix in ATTACHMENTS:
        if (run.folder / source).exists():
            target = folder / place / f"{run.cell}{suffix}"
            write_atomically(target, functools.partial(shutil.copyfile, run.folder / source))
