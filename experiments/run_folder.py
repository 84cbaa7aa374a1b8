"""`runs/<run>/`: one folder per training run, with every evaluation of its weights inside.

config.yaml        settings of the run and its default evaluation
checkpoint.pt      state of training; checkpoint.sha256 beside it
training.json      cost of training, written when it ends
curve.csv          learning curve
record.json        the default evaluation (record-<cell>.json: others), written last
progress.json      heartbeat of a running cell
lock               held by the process that uses this folder; released when it exits
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import errno
import fcntl
import functools
import json
import math
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import filelock
import torch
import yaml
from hydra.core.hydra_config import HydraConfig

from common import write_json, write_text
from experiments.config import CellConfig, deciding_settings
from experiments.names import cell_name, run_name
from experiments.table import identity
from training.trainer import Event, Listener, Phase

ROOT = Path(__file__).resolve().parent.parent
HEARTBEAT_SECONDS = 1.0


class Run:
    """The folder of one training run."""

    def __init__(self, runs_dir: str | Path, name: str) -> None:
        self.name = name
        self.folder = Path(runs_dir) / name
        self.checkpoint = self.folder / "checkpoint.pt"

    @classmethod
    def of(cls, config: CellConfig) -> Run:
        return cls(config.runs_dir, run_name(config))

    @contextlib.contextmanager
    def locked(self, cell: str) -> Iterator[bool]:
        """Hold the folder's lock; yields False if another process is working on `cell`. Waits for a
        process that works on another cell of this run."""
        self.folder.mkdir(parents=True, exist_ok=True)
        # Another process's `is_running` holds the lock for a moment, so try again.
        lock = filelock.FileLock(self.folder / "lock", timeout=0.5)
        while not lock.is_locked:
            try:
                lock.acquire()
            except filelock.Timeout:
                if self.progress().get("cell") == cell:
                    yield False
                    return
        try:
            for left in self.folder.glob(".*"):  # half-written by a process that was killed
                shutil.rmtree(left, ignore_errors=True)
            write_json(self.folder / "progress.json", {"cell": cell})
            yield True
        finally:
            lock.release()

    def is_running(self) -> bool:
        """Whether a living process holds the lock."""
        try:
            with (self.folder / "lock").open() as file:
                # Shared, so that two processes can ask at once.
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:  # ENOENT: no process has been here
            return error.errno == errno.EAGAIN
        return False

    def write_config(self, config: CellConfig) -> None:
        tested = config.data.test or config.data.file
        measure = {} if tested else {"file": config.measure.file}  # no other sequences to test
        settings = {**deciding_settings(config), "measure": measure}
        write_text(self.folder / "config.yaml", yaml.safe_dump(settings, sort_keys=False))

    def record_path(self, cell: str) -> Path:
        return self.folder / ("record.json" if cell == self.name else f"record-{cell}.json")

    def record(self, cell: str) -> dict[str, Any] | None:
        """The evaluation's record; None if it has not run."""
        return _read_json(self.record_path(cell))

    def write_record(
        self, config: CellConfig, row: Mapping[str, Any], **more: Any
    ) -> dict[str, Any]:
        """Write and return the record of an evaluation: its row, with standard columns added, its
        configuration, and `more`."""
        cell, settings = cell_name(config), deciding_settings(config)
        row = {**identity(settings), **row, "run": self.name, "cell": cell, **provenance()}
        record = {"row": row, "config": settings, "command": command(), **more}
        write_json(self.record_path(cell), record)
        return record

    def finished(self, cell: str) -> dict[str, Any] | None:
        """The record of a finished evaluation."""
        record = self.record(cell)
        return record if record and record["row"]["status"] == "done" else None

    def training(self) -> dict[str, Any] | None:
        """The cost of training; None until it has ended."""
        return _read_json(self.folder / "training.json")

    def heartbeat(self, cell: str) -> Listener:
        """A listener that writes progress.json once a second, and at every new phase."""
        known: dict[str, Any] = {"cell": cell}
        written = -math.inf

        def listen(event: Event) -> None:
            nonlocal written
            known.update(dataclasses.asdict(event))
            if isinstance(event, Phase) or time.monotonic() - written > HEARTBEAT_SECONDS:
                written = time.monotonic()
                write_json(self.folder / "progress.json", known)

        return listen

    def progress(self) -> dict[str, Any]:
        return _read_json(self.folder / "progress.json") or {}

    def discard(self, cell: str) -> None:
        """Move the evaluation `cell` to `runs/.before/`; for the default one, the whole
        run, to train again."""
        aside = self.folder.parent / ".before" / f"{self.name}-{time.time_ns()}"
        paths = list(self.folder.iterdir()) if cell == self.name else [self.record_path(cell)]
        paths.sort(key=lambda path: path.name != "training.json")  # without it, training restarts
        for path in paths:
            if path.name not in ("lock", "progress.json") and path.exists():
                aside.mkdir(parents=True, exist_ok=True)
                path.rename(aside / path.name)


def _read_json(path: Path) -> dict[str, Any] | None:
    return json.loads(path.read_text()) if path.exists() else None


def provenance() -> dict[str, Any]:
    """Commit, torch version and time, columns of every row."""
    return {
        "commit": commit(),
        "torch_version": torch.__version__,
        "finished_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def command() -> str:
    """The command typed, also in a cluster's jobs."""
    here = ["python", Path(sys.argv[0]).name, *sys.argv[1:]]
    return os.environ.get("COTCOST_COMMAND") or shlex.join(here)


@functools.cache
def commit() -> str:
    """The commit of this code, with `-dirty` if Python files or conf/ differ from it; empty without
    git."""
    git = functools.partial(subprocess.run, cwd=ROOT, check=True, capture_output=True, text=True)
    try:
        head = git(["git", "rev-parse", "--short=12", "HEAD"]).stdout.strip()
        changed = git(["git", "status", "--porcelain", "--", "*.py", "conf"]).stdout
        return head + "-dirty" * bool(changed)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        reason = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[0]
        if HydraConfig.initialized():  # not in the local launcher's server
            print(f"warning: results have no commit ({reason})", file=sys.stderr)
        return ""
