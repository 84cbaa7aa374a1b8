"""Runs as small files: records in one JSON file, checkpoints of unfinished cells in parts.

``records.json``   the plan's header and, for every cell, its record, learning curve and errors
``checkpoints.NN`` one tar file cut into parts, whose digest stands in ``records.json``
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.gpu.shared import read_json, write_json
from errors import UserError
from experiments.store import Run
from training.files import write_atomically, write_text

MEGABYTE = 10**6
KEPT = ("experiment", "overrides", "commit", "tree_dirty")


def pack(
    out: Path, header: dict[str, Any], runs: Iterable[Run], checkpoint_mb: float, part_mb: float
) -> list[str]:
    """Write the records of ``runs`` and what fits of their checkpoints to ``out``.

    Returns the unfinished cells whose checkpoints found no room; the cheapest bytes for the
    longest training go first.
    """
    known = {run.cell: (run, record) for run in runs if (record := run.record())}
    cells = {name: _content(run, record) for name, (run, record) in known.items()}
    waiting = [run for run, record in known.values() if record["status"] == "unfinished"]
    waiting = [run for run in waiting if (run.folder / "checkpoint.pt").exists()]
    waiting.sort(key=lambda run: -_seconds_trained(run) / _size(run))
    carried: list[Run] = []
    for run in waiting:
        if sum(map(_size, [*carried, run])) <= checkpoint_mb * MEGABYTE:
            carried.append(run)
    parts = _write_parts(out, carried, int(part_mb * MEGABYTE))
    write_json(out / "records.json", {**header, "cells": cells, **parts})
    return [run.cell for run in waiting if run not in carried]


def write_records(out: Path, header: dict[str, Any], runs: Iterable[Run]) -> None:
    """Write records alone: should the machine go, what is finished is there."""
    pack(out, header, runs, checkpoint_mb=0, part_mb=1)


def unpack(folder: Path, runs_dir: Path) -> dict[str, Any]:
    """Put what `pack` wrote to ``folder`` into ``runs_dir`` and return the content of its
    records; what stands there already and is further stays.

    Raises `UserError` when a part is missing or damaged.
    """
    content = read_json(folder / "records.json")
    if not isinstance(content.get("cells"), dict):
        raise UserError(f"{folder / 'records.json'}: not the records of cells")
    new = [name for name, packed in content["cells"].items() if _is_newer(packed, name, runs_dir)]
    for name in new:
        _restore(Run(runs_dir, name), content["cells"][name])
    for name, checkpoint in _read_parts(folder, content).items():
        if name in new:
            write_bytes(runs_dir / name / "checkpoint.pt", checkpoint)
    return content


def _content(run: Run, record: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {"record": record}
    for name in ("curve.csv", "errors.json"):
        path = run.folder / name
        content[name] = path.read_text(encoding="utf-8") if path.exists() else None
    return content


def _restore(run: Run, packed: dict[str, Any]) -> None:
    for name in ("curve.csv", "errors.json"):
        if packed[name] is not None:
            write_text(run.folder / name, packed[name])
    run.write_record(packed["record"])


def _is_newer(packed: dict[str, Any], name: str, runs_dir: Path) -> bool:
    """Tell whether the packed record takes the place of the one in ``runs_dir``."""
    here, there = Run(runs_dir, name).record(), packed["record"]
    if here is None or here["status"] == "done" or there["status"] == "done":
        return here is None or here["status"] != "done"
    return bool(there["finished_at"] > here["finished_at"])


def _seconds_trained(run: Run) -> float:
    """Return the seconds of training behind a checkpoint, by its learning curve."""
    try:
        last = (run.folder / "curve.csv").read_text().splitlines()[-1].split(",")
        return float(last[1])
    except (OSError, ValueError, IndexError):
        return 0.0


def _size(run: Run) -> int:
    return (run.folder / "checkpoint.pt").stat().st_size


def _write_parts(out: Path, runs: list[Run], part_bytes: int) -> dict[str, Any]:
    for old in out.glob("checkpoints.[0-9][0-9]"):
        old.unlink()
    if not runs:
        return {"parts": [], "sha256": None}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for run in runs:
            archive.add(run.folder / "checkpoint.pt", arcname=run.cell)
    data = buffer.getvalue()
    names: list[str] = []
    for start in range(0, len(data), part_bytes):
        names.append(f"checkpoints.{len(names):02d}")
        write_bytes(out / names[-1], data[start : start + part_bytes])
    return {"parts": names, "sha256": hashlib.sha256(data).hexdigest()}


def _read_parts(folder: Path, content: dict[str, Any]) -> dict[str, bytes]:
    if not content.get("parts"):
        return {}
    missing = [name for name in content["parts"] if not (folder / name).is_file()]
    if missing:
        raise UserError(f"{folder}: {', '.join(missing)} missing; copy the whole folder")
    data = b"".join((folder / name).read_bytes() for name in content["parts"])
    if hashlib.sha256(data).hexdigest() != content["sha256"]:
        raise UserError(f"{folder}: the checkpoints are damaged; copy the whole folder again")
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {m.name: archive.extractfile(m).read() for m in archive.getmembers()}  # type: ignore[union-attr]


def write_bytes(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` atomically."""
    write_atomically(path, lambda temporary: temporary.write_bytes(data))


def header_of(plan: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a plan that its records repeat."""
    missing = [key for key in (*KEPT, "cells") if key not in plan]
    if missing:
        raise UserError(f"not a plan of benchmarks.gpu.plan: lacks {', '.join(missing)}")
    return {key: plan[key] for key in KEPT}
