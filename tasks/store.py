"""The store of data sets: one folder per key, built aside, renamed when whole, verified at load.

A folder holds a Hugging Face data set per split, ``meta.json`` with the content fingerprint, and
the files by which others open and understand it (`tasks.card`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from common import DiskFullError, RunError, UserError, clear_disk_errors, no_room, write_text
from tasks.task import SPLITS, SequenceSet

_FIELDS = ("tokens", "lengths", "prompt_lengths", "labels")
_BUILDING = ".building-"

Sets = dict[str, SequenceSet]
Beside = Callable[[Mapping[str, Any]], dict[str, str]]  # from meta.json to other files' text


class Damaged(Exception):
    """A stored folder that is not what was stored."""


def fingerprint(sets: Sets) -> str:
    """Return the sha256 over names, shapes, types and bytes: the same in every process."""
    digest = hashlib.sha256()
    for split in SPLITS:
        for name in _FIELDS:
            if getattr(sets[split], name) is None:
                continue
            array = np.ascontiguousarray(getattr(sets[split], name))
            digest.update(f"{split} {name} {array.shape} {array.dtype.str}".encode())
            digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def load_or_make(
    path: Path,
    make: Callable[[], Sets],
    about: dict[str, Any],
    expected_bytes: int,
    beside: Beside = lambda meta: {},
) -> tuple[Sets, str]:
    """Return the sets stored in ``path`` and their fingerprint; make and store them if need be.

    ``about`` goes to ``meta.json`` for people; ``expected_bytes`` is compared with the free space
    before anything is made; ``beside`` gives the files for people and other programs.
    """
    with contextlib.suppress(Damaged, FileNotFoundError):
        found = load(path)
        _complete(path, beside)
        return found
    with clear_disk_errors(path, expected_bytes):
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path):
            try:
                return load(path)
            except FileNotFoundError:
                pass
            except Damaged as error:
                print(f"{path}: damaged ({error}); building it again", file=sys.stderr)
            clear_stale(path.parent, path.name)
            require_space(path.parent, expected_bytes)
            sets = make()
            return sets, save(path, sets, about, beside)


def load(path: Path) -> tuple[Sets, str]:
    """Read a stored folder; `FileNotFoundError` when there is none, `Damaged` when altered."""
    if not path.is_dir():
        raise FileNotFoundError(path)
    try:
        meta = json.loads((path / "meta.json").read_text(encoding="utf-8"))
        sets = {split: _load_split(path / split) for split in SPLITS}
        expected = meta["fingerprint"]
    except Exception as error:  # whatever a damaged file makes its reader raise
        first_line = (str(error).splitlines() or [""])[0]
        raise Damaged(f"{type(error).__name__}: {first_line}"[:200]) from error
    if fingerprint(sets) != expected:
        raise Damaged("its content does not have the fingerprint that was stored with it")
    return sets, expected


def save(path: Path, sets: Sets, about: dict[str, Any], beside: Beside = lambda meta: {}) -> str:
    """Write aside, then rename to ``path``; returns the fingerprint."""
    aside = path.parent / f"{_BUILDING}{path.name}-{os.getpid()}"
    content = fingerprint(sets)
    try:
        for split in SPLITS:
            _save_split(sets[split], aside / split, _split_key(path, split))
        counts = {split: len(sets[split]) for split in SPLITS}
        meta = {**about, "sequences": counts, "fingerprint": content}
        text = json.dumps(meta, indent=2, default=str) + "\n"
        (aside / "meta.json").write_text(text, encoding="utf-8")
        for name, content_of in beside(json.loads(text)).items():
            (aside / name).write_text(content_of, encoding="utf-8")
        if path.exists():
            path.rename(path.parent / f"{_BUILDING}{path.name}-replaced-{os.getpid()}")
        aside.rename(path)
    finally:
        clear_stale(path.parent, path.name)
    return content


def _complete(path: Path, beside: Beside) -> None:
    """Add the files that a folder of an earlier version lacks, where it may be written."""
    if (path / "dataset_dict.json").exists():
        return
    meta = json.loads((path / "meta.json").read_text(encoding="utf-8"))
    with contextlib.suppress(OSError, UserError, RunError):
        for name, text in beside(meta).items():
            write_text(path / name, text)


def clear_stale(directory: Path, held: str) -> None:
    """Remove what killed builders left; ``held`` is the key whose lock the caller holds."""
    for folder in directory.glob(f"{_BUILDING}*"):
        key = folder.name.removeprefix(_BUILDING).split("-")[0]
        if key == held:
            shutil.rmtree(folder, ignore_errors=True)
            continue
        with contextlib.suppress(Timeout), FileLock(_lock_path(directory / key), timeout=0):
            shutil.rmtree(folder, ignore_errors=True)


def require_space(directory: Path, expected_bytes: int) -> None:
    """Raise `DiskFullError` when ``directory`` has no room for ``expected_bytes``."""
    if shutil.disk_usage(directory).free < expected_bytes:
        raise DiskFullError(no_room(directory / "the data set", expected_bytes))


def _lock_path(path: Path) -> str:
    return str(path.parent / f".{path.name}.lock")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of one key, telling the person when that means waiting."""
    lock = FileLock(_lock_path(path))
    try:
        lock.acquire(timeout=1)
    except Timeout:
        print(f"{path}: another process is building it; waiting", file=sys.stderr)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _save_split(sequences: SequenceSet, path: Path, key: str) -> None:
    import pyarrow as pa  # as late as datasets

    def rows(array: np.ndarray) -> Any:
        flat = pa.array(np.ascontiguousarray(array).reshape(-1))
        return pa.FixedSizeListArray.from_arrays(flat, array.shape[1])

    columns = {
        "tokens": rows(sequences.tokens),
        "lengths": pa.array(sequences.lengths),
        "prompt_lengths": pa.array(sequences.prompt_lengths),
    }
    if sequences.labels is not None:
        columns["labels"] = rows(sequences.labels)
    table = pa.table(columns)
    with quiet_datasets() as datasets:
        data = datasets.Dataset(table, fingerprint=key)
        data.save_to_disk(str(path), num_shards=1)


def _split_key(folder: Path, split: str) -> str:
    """Return what a split says it is, so that a folder under another's name is noticed."""
    return f"{folder.name}-{split}"


def _load_split(path: Path) -> SequenceSet:
    state = json.loads((path / "state.json").read_text(encoding="utf-8"))
    written_for, here = state["_fingerprint"], _split_key(path.parent, path.name)
    if written_for != here:
        raise Damaged(f"it is {written_for}, not {here}")
    with quiet_datasets() as datasets:
        table = datasets.Dataset.load_from_disk(str(path)).data.table
    return SequenceSet(
        _rows(table.column("tokens")),
        table.column("lengths").to_numpy(),
        table.column("prompt_lengths").to_numpy(),
        _rows(table.column("labels")) if "labels" in table.column_names else None,
    )


def _rows(column: Any) -> np.ndarray:
    parts = [np.asarray(chunk.flatten()) for chunk in column.chunks]
    dtype = column.type.value_type.to_pandas_dtype()
    flat = np.concatenate(parts) if parts else np.empty(0, dtype)
    return flat.reshape(-1, column.type.list_size)


@contextlib.contextmanager
def quiet_datasets() -> Iterator[Any]:
    """Import ``datasets`` (late: that takes a second or more) without its progress bars."""
    import datasets

    shown = not datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield datasets
    finally:
        if shown:
            datasets.enable_progress_bars()
