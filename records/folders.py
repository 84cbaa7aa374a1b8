"""The folders under ``runs/``: what this machine has trained and measured, by any experiment.

``runs/<weights>/`` holds the weights::

    config.yaml     resolved configuration      weights.json    what training cost, written last
    checkpoint.pt   state of training           curve.csv       learning curve
    weights.lock    held while a process trains

``runs/<cell>/`` holds a measurement of them, and for weights measured as they were trained the two
are one folder::

    config.yaml     resolved configuration      record.json     the row, written once, last
    errors.json     where chains break          progress.json   heartbeat of a running cell
    lock            held while a process works on the cell
    queued.json     the ticket of the cell's latest job in a batch system

The system frees a lock on any death of its holder.  Records hold a digest of themselves and of the
files beside them that decide a result; a damaged record counts as none, and its next writer sets it
aside as ``*.damaged``.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

import filelock
import yaml

from common import (
    clear_disk_errors,
    load_yaml,
    read_regular,
    remove_stale,
    sha256_of,
    write_json,
    write_text,
)
from config.identity import cell_name, weights_name
from config.schema import CellConfig
from evaluation.judge import wilson_interval
from records.sealed import read_json, read_sealed, sealed

STATUSES = ("done", "failed", "unfinished")
LOCK_PATIENCE_SECONDS = 1.0
EVALUATION_PARTS = "evaluation_parts"
DECIDING_FILES = ("config.yaml", "errors.json")  # beside a record; the weights' have their own


class _Locked:
    """Part of a folder, of which one process at a time is the writer.

    ``names`` are the files that are written under its lock alone; ``config.yaml`` is written under
    that of the cell and under that of the weights, and both may share the folder.
    """

    lock_name = "lock"
    other_lock_name = "weights.lock"
    names: tuple[str, ...] = ()

    def __init__(self, runs_dir: str | Path, name: str) -> None:
        self.name = name
        self.folder = Path(runs_dir) / name
        self._lock: filelock.BaseFileLock | None = None

    def acquire(self, patience: float = LOCK_PATIENCE_SECONDS) -> bool:
        """Take the lock; False when another process keeps it for ``patience`` seconds.

        Some patience always, because `is_running` of another process holds it for an instant.
        """
        self._lock = filelock.FileLock(self.folder / self.lock_name, is_singleton=False)
        with clear_disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                self._lock.acquire(timeout=patience, poll_interval=0.02)
            except filelock.Timeout:
                return False
            self._remove_leftovers()
        return True

    def _remove_leftovers(self) -> None:
        """Remove what killed processes were writing; what another may be writing now stays."""
        remove_leftovers(self.folder, *self.names)
        remove_stale(self.folder)
        if not any(self.folder.glob(".config.yaml.*.tmp")):
            return
        other = filelock.FileLock(self.folder / self.other_lock_name, is_singleton=False)
        with contextlib.suppress(filelock.Timeout), other.acquire(timeout=0):
            remove_leftovers(self.folder, "config.yaml")

    def release(self) -> None:
        """Give the lock back."""
        if self._lock is not None:
            self._lock.release()

    def is_running(self) -> bool:
        """Tell whether a living process holds the lock."""
        if not (self.folder / self.lock_name).exists():
            return False
        probe = filelock.FileLock(self.folder / self.lock_name, timeout=0, is_singleton=False)
        try:
            with probe:
                return False
        except filelock.Timeout:
            return True
        except OSError:  # read-only for us: nobody here can hold it
            return False

    def write_config(self, plain: dict[str, Any]) -> None:
        """Write the resolved configuration."""
        write_text(self.folder / "config.yaml", yaml.safe_dump(plain, sort_keys=False))

    def config(self) -> dict[str, Any]:
        """Return the resolved configuration as it is written; empty when it cannot be read."""
        return read_yaml(self.folder / "config.yaml")

    def digests(self, *names: str) -> dict[str, str]:
        """Return the SHA-256 of the named files, as a record holds them."""
        return {name: sha256_of(self.folder / name) for name in names}

    def set_record_aside(self, name: str) -> None:
        """Move the record ``name``, which counts as none, out of the way, and say so."""
        path = self.folder / name
        if path.exists():
            path.replace(path.with_suffix(".damaged"))
            why = "damaged, of another version, or without its checkpoint"
            print(f"warning: {path}: {why}; set aside", file=sys.stderr)


class WeightsFolder(_Locked):
    """The folder of trained weights."""

    lock_name = "weights.lock"
    other_lock_name = "lock"
    names = ("checkpoint.pt", "curve.csv", "weights.json")

    @classmethod
    def of(cls, config: CellConfig) -> WeightsFolder:
        """Return the folder of the weights that ``config`` describes."""
        return cls(config.runs_dir, weights_name(config))

    @property
    def checkpoint(self) -> Path:
        """The checkpoint's path."""
        return self.folder / "checkpoint.pt"

    def record(self) -> dict[str, Any] | None:
        """Return what training cost, or None when it has not ended or another's record is there."""
        content = read_sealed(self.folder / "weights.json")
        whole = content is not None and content.get("weights") == self.name
        return content if whole and self.checkpoint.exists() else None

    def checkpoint_sha256(self) -> str | None:
        """Return the digest that the end of training noted of the checkpoint; None before it."""
        record = self.record() or {}
        noted = record.get("digests", {}).get("checkpoint.pt") or record.get("checkpoint_sha256")
        return str(noted) if record else None

    def write_record(self, record: dict[str, Any]) -> None:
        """Write what training cost: the last thing that training does."""
        noted = self.digests("checkpoint.pt", "curve.csv")
        write_json(self.folder / "weights.json", sealed({**record, "digests": noted}))


class CellFolder(_Locked):
    """The folder of one cell: a measurement of some weights."""

    names = ("record.json", "errors.json", "progress.json")

    @classmethod
    def of(cls, config: CellConfig) -> CellFolder:
        """Return the folder of the cell that ``config`` describes."""
        return cls(config.runs_dir, cell_name(config))

    def record(self) -> dict[str, Any] | None:
        """Return the record, or None when there is none that this version understands.

        A damaged one, one of another cell and one without a known status count as none: the cell
        is measured again.
        """
        content = read_sealed(self.folder / "record.json")
        if content is None or content.get("cell") != self.name:
            return None
        known = content.get("status") in STATUSES and isinstance(content.get("finished_at"), str)
        return content if known and (content["status"] != "done" or _measured(content)) else None

    def stamp(self) -> int | None:
        """Return a number that changes whenever a record is written; None without one."""
        try:
            return os.stat(self.folder / "record.json").st_mtime_ns  # noqa: PTH116 - 10,000 a second
        except OSError:
            return None

    def write_record(self, record: dict[str, Any]) -> None:
        """Write the record: the last thing a cell does."""
        there = [name for name in DECIDING_FILES if (self.folder / name).exists()]
        write_json(self.folder / "record.json", sealed({**record, "digests": self.digests(*there)}))

    def restore_config(self, plain: dict[str, Any]) -> None:
        """Write the configuration of a finished cell again where it is lost, and note its digest.

        ``plain`` is the resolved configuration that the cell's name stands for.
        """
        record = self.record()
        if record is None or (self.folder / "config.yaml").exists():
            return
        self.write_config(plain)
        noted = {**record.get("digests", {}), **self.digests("config.yaml")}
        write_json(self.folder / "record.json", sealed({**record, "digests": noted}))

    def write_progress(self, **values: Any) -> None:
        """Write a heartbeat for whoever watches; `updated` is for people, nothing relies on it."""
        write_text(self.folder / "progress.json", json.dumps({**values, "updated": time.time()}))

    def progress(self) -> dict[str, Any] | None:
        """Return the last heartbeat."""
        return read_json(self.folder / "progress.json")

    def write_ticket(self, ticket: dict[str, Any]) -> None:
        """Note the job that is about to be submitted for this cell."""
        write_json(self.folder / "queued.json", ticket)

    def ticket(self) -> dict[str, Any] | None:
        """Return the latest job's ticket; whether that job still waits is the queue's to say."""
        ticket = read_json(self.folder / "queued.json")
        whole = ticket is not None and {"slurm_job_name", "array_index"} <= ticket.keys()
        return ticket if whole else None

    def set_aside(self) -> None:
        """Move everything but the locks to ``runs/.before/<cell>-<time>``: measured again, kept."""
        aside = self.folder.parent / ".before" / f"{self.name}-{time.time_ns()}"
        with clear_disk_errors(aside):
            for path in self.folder.iterdir():
                if path.suffix != ".lock" and path.name != "lock":
                    aside.mkdir(parents=True, exist_ok=True)
                    path.rename(aside / path.name)


def _measured(record: dict[str, Any]) -> bool:
    """Tell whether a finished record holds an accuracy.

    One of the version before has no digest; its interval must be that of its accuracy.
    """
    if "answer_accuracy" not in record or "digest" in record:
        return "answer_accuracy" in record
    names = ("answer_accuracy", "n_test", "answer_accuracy_low", "answer_accuracy_high")
    try:
        share, count, low, high = (float(record[name]) for name in names)
    except (KeyError, TypeError, ValueError):
        return False
    right = round(share * count)
    ends = zip(wilson_interval(right, int(count)), (low, high), strict=True)
    # That version left rounding, up to 1e-16, where the end of an interval is 0 or 1.
    return right / count == share and all(math.isclose(*end, abs_tol=1e-12) for end in ends)


def remove_leftovers(folder: Path, *names: str) -> None:
    """Remove what killed processes were writing as ``names``; the caller holds their lock."""
    for name in names:
        for leftover in folder.glob(f".{name}.*.tmp"):
            leftover.unlink(missing_ok=True)


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the YAML mapping in ``path``; empty when there is none that can be read."""
    try:
        content = load_yaml(read_regular(path).decode())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
