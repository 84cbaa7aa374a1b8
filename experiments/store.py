"""The store: one folder per cell under ``runs/``, one table per experiment under ``results/``.

``runs/<cell>/`` belongs to this machine and is shared by all experiments::

    config.yaml     resolved configuration         record.json     the result, written once, last
    checkpoint.pt   latest state of training       curve.csv       learning curve
    errors.json     where chains break             progress.json   heartbeat of a running cell
    lock            held while a process works on the cell; the system frees it on any death

``results/<experiment>/`` is what one commits: ``results.csv`` with ``configs/``, ``curves/`` and
``errors/`` beside it.  Rows come from records in any order and from any machine; a row once
entered stays until a newer record of the same cell replaces it.
"""

from __future__ import annotations

import functools
import json
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import filelock
import pandas as pd
import yaml

from errors import UserError
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
        self._lock = filelock.FileLock(self.folder / "lock", timeout=0)

    @classmethod
    def of(cls, config: CellConfig) -> Run:
        """Return the run of the cell that ``config`` describes."""
        return cls(config.runs_dir, cell_name(config))

    def acquire(self) -> bool:
        """Take the cell for this process; False when another process works on it."""
        with clear_disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                self._lock.acquire()
            except filelock.Timeout:
                return False
        return True

    def release(self) -> None:
        """Give the cell back."""
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

    def record(self) -> dict[str, Any] | None:
        """Return the record, or None when there is none (a damaged one counts as none)."""
        return _read_json(self.folder / "record.json")

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
        """Write a heartbeat for whoever watches."""
        write_text(self.folder / "progress.json", json.dumps({**values, "updated": time.time()}))


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
    with filelock.FileLock(folder / ".lock", timeout=120):
        table = read_table(folder / "results.csv")
        changed = {cell: pair for cell, pair in records.items() if not _has(table, pair[1])}
        if changed:
            table = _merged(table, [record for _, record in changed.values()])
            for run, _ in changed.values():
                _copy_attachments(run, folder)
            write_atomically(folder / "results.csv", lambda path: table.to_csv(path, index=False))
    return table


def _has(table: pd.DataFrame, record: dict[str, Any]) -> bool:
    rows = table[table["cell"] == record["cell"]]
    return bool(len(rows)) and bool((rows["finished_at"] == record["finished_at"]).any())


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
