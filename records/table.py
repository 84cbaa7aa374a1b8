"""The table of an experiment, and what lies beside it: ``results/<experiment>/``.

``results.csv`` has a row per measurement and seed; ``configs/``, ``curves/`` and ``errors/`` hold a
file per cell.  Rows come from records in any order and from any machine.  A row ends with digests
of its files and of itself, which every reading compares; one without is of an older version.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import filelock
import pandas as pd

from common import (
    RunError,
    UserError,
    clear_disk_errors,
    read_regular,
    remove_stale,
    write_bytes,
    write_text,
)
from config.columns import IDENTITY, settings_of, varying
from records.folders import CellFolder, WeightsFolder, read_yaml, remove_leftovers
from records.reading import (
    ATTACHMENT_COLUMNS,
    INTEGERS,
    REMEDY,
    attachment_is_whole,
    attachment_path,
    read,
    row_digest,
)

MEASURED = """
status reason stopped answer_accuracy answer_accuracy_low answer_accuracy_high chain_exact_match
chance_accuracy n_test steps steps_to_90 seconds_to_90 train_seconds eval_seconds params
flops_linear_layers flops_total flops_training state_bytes padded_share precision device hostname
torch_version data_fingerprint weights cell trained_commit trained_device commit tree_dirty
finished_at
""".split()
TOLD = [*IDENTITY[:3], "max_len", *IDENTITY[3:], *MEASURED]  # by a record
COLUMNS = [*TOLD, *ATTACHMENT_COLUMNS, "digest"]
SORT = ["task", "format", "size", "model", "layers", "heads", "dim", "recipe", "seed"]
SOURCES = {"configs": "config.yaml", "curves": "curve.csv", "errors": "errors.json"}
LOCK_SECONDS = 120.0
MOVED = "; "  # between the devices of a training that went from one to another, or of seeds
Row = dict[str, str]


def table_path(results_dir: str | Path, experiment: str) -> Path:
    """Return the path of the experiment's table."""
    return Path(results_dir) / experiment / "results.csv"


def read_table(path: Path) -> pd.DataFrame:
    """Return a results table with every known column; an empty one when the file is missing.

    Raises `UserError` when the file is there but is not a whole results table.
    """
    if not path.exists():
        return pd.DataFrame(columns=COLUMNS)
    table = read(path, allow_empty=True)
    return table.reindex(columns=[*COLUMNS, *(c for c in table.columns if c not in COLUMNS)])


def training_devices(table: pd.DataFrame) -> pd.Series:
    """Return the device that trained each row: the one that measured, where the row tells no other.

    Rows of older versions do not.
    """
    told = table.reindex(columns=["trained_device", "device"]).astype(object)
    return told["trained_device"].fillna(told["device"])


def as_table(row: dict[str, Any]) -> pd.DataFrame:
    """Return a results table of one row."""
    return pd.DataFrame([row]).reindex(columns=COLUMNS)


def enter(results_dir: str | Path, experiment: str, cells: Iterable[CellFolder]) -> pd.DataFrame:
    """Merge the records of ``cells`` into the experiment's table and return the table."""
    merge(results_dir, experiment, cells)
    return read_table(table_path(results_dir, experiment))


def merge(results_dir: str | Path, experiment: str, cells: Iterable[CellFolder]) -> None:
    """Merge the records of ``cells`` into the experiment's table.

    Many processes may do so at once: the merge holds a lock, and the file is replaced whole.
    What stands in a row that stays keeps its text to the byte.
    """
    folder = Path(results_dir) / experiment
    records = {cell.name: (cell, record) for cell in cells if (record := cell.record())}
    if not records:
        return
    with writing(folder):
        _merge_locked(folder, records)


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Hold the lock of the table in ``folder``, which is made where it is missing.

    Raises `RunError` when another process keeps it for `LOCK_SECONDS`.
    """
    with clear_disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(folder / ".lock", timeout=LOCK_SECONDS)
        try:
            lock.acquire()
        except filelock.Timeout:
            held = f"held by another process for {LOCK_SECONDS:g} s"
            raise RunError(f"{folder / '.lock'}: {held}") from None
        try:
            yield
        finally:
            lock.release()


def _merge_locked(folder: Path, records: dict[str, tuple[CellFolder, dict[str, Any]]]) -> None:
    remove_leftovers(folder, "results.csv")
    remove_stale(folder)  # of others, who write here without this lock
    for kind in SOURCES:
        remove_leftovers(folder / kind, "*")
    rows = text_rows(folder / "results.csv")
    for name, (cell, record) in records.items():
        require_agreement(folder, rows.get(name), record)
        restore_attachments(cell, record, rows.get(name, {}), folder)
    changed = {name: pair for name, pair in records.items() if replaces(pair[1], rows.get(name))}
    if changed:
        take_in(folder, rows, changed)


def require_agreement(folder: Path, row: Row | None, record: dict[str, Any]) -> None:
    """Raise `UserError` where a row says of the same measurement what its record does not."""
    if row is None or row["status"] != "done" or row["finished_at"] != record["finished_at"]:
        return
    for column in TOLD:
        told, stands = text_of(record.get(column)), row.get(column, "")
        if told != stands:
            raise UserError(
                f"{folder / 'results.csv'}: cell {row['cell']} has {column}={stands}, its record "
                f"{column}={told}; {REMEDY.format(folder.name)}"
            )


def take_in(
    folder: Path, rows: dict[str, Row], changed: Mapping[str, tuple[CellFolder, dict[str, Any]]]
) -> None:
    """Put the records of ``changed`` in the place of their ``rows``; write table and files."""
    for name, (cell, record) in changed.items():
        rows[name] = {column: text_of(record.get(column)) for column in COLUMNS}
        rows[name] |= _copy_attachments(cell, record, folder)
    settings = {name: _settings_of_row(folder, name, row) for name, row in rows.items()}
    _drop_superseded(rows, settings, changed)
    _write(folder / "results.csv", rows, settings)


def _write(path: Path, rows: Mapping[str, Row], settings: Mapping[str, dict[str, Any]]) -> None:
    """Write the rows, with a column for every setting that varies.

    A row whose configuration is lost keeps what it says of such settings.
    """
    lost = [row for name, row in rows.items() if not settings[name]]
    keys = varying([(row, settings[name]) for name, row in rows.items() if settings[name]])
    said = {key for row in lost for key, text in row.items() if key not in COLUMNS and text}
    keys = sorted({*keys, *said})
    told = [
        {**{column: row.get(column, "") for column in COLUMNS},
         **{key: text_of(settings[name].get(key)) if settings[name] else row.get(key, "")
            for key in keys}}
        for name, row in rows.items()
    ]  # fmt: skip
    table = pd.DataFrame(told, columns=[*COLUMNS, *keys], dtype=object).fillna("")
    table = table.sort_values([*SORT, *keys, "cell"], kind="stable", key=_sortable)
    table["digest"] = [row_digest(cast("Row", row)) for row in table.to_dict("records")]
    write_text(path, table.to_csv(index=False))


def _drop_superseded(
    rows: dict[str, Row], settings: Mapping[str, dict[str, Any]], fresh: Iterable[str]
) -> None:
    """Drop rows of the same settings as a fresh one: an older version of the code measured them."""
    identity = {
        name: (*(row.get(column, "") for column in IDENTITY), text_of(settings[name]))
        for name, row in rows.items()
    }
    new = {identity[name]: name for name in fresh if rows[name]["status"] == "done"}
    for name, key in identity.items():
        if new.get(key, name) != name and settings[name]:
            del rows[name]


def _settings_of_row(folder: Path, name: str, row: Row) -> dict[str, Any]:
    digest = row.get("config_digest", "")
    path = attachment_path(folder.resolve(), "configs", f"{name}.yaml")
    return {} if path is None else _settings(path, digest)


@functools.lru_cache(maxsize=2**17)
def _settings(path: Path, digest: str) -> dict[str, Any]:
    """Return a row's other settings; a cell's name fixes them, so they are read once."""
    if digest and not attachment_is_whole(path, digest):
        remedy = REMEDY.format(path.parent.parent.name)
        raise UserError(f"{path}: altered since it was written; {remedy}")
    return settings_of(read_yaml(path))


def text_rows(path: Path) -> dict[str, Row]:
    """Return the rows of a results table by cell, every value as the text that stands there."""
    read_table(path)  # refuses what is not a results table
    if not path.exists():
        return {}
    text = pd.read_csv(path, dtype=str, keep_default_na=False)
    for column in INTEGERS & set(text.columns):
        text[column] = text[column].str.removesuffix(".0")
    return {str(row["cell"]): cast("Row", row) for row in text.to_dict("records")}


def text_of(value: Any) -> str:
    """Return a value as the table holds it; what was not measured is empty."""
    if value is None or value != value:
        return ""
    return repr(value) if isinstance(value, float) else str(value)


def _sortable(column: pd.Series) -> pd.Series:
    numbers = pd.to_numeric(column, errors="coerce")
    return column if numbers.isna().any() else numbers


def replaces(record: dict[str, Any], row: Row | None) -> bool:
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


def restore_attachments(cell: CellFolder, record: dict[str, Any], row: Row, folder: Path) -> None:
    """Put back each file that ``row`` names and that is missing beside the table, from ``cell``.

    Where its weights lie is for its ``record`` to say: a table may be anyone's.
    """
    for column, (kind, suffix) in ATTACHMENT_COLUMNS.items():
        digest = row.get(column, "")
        path = folder / kind / f"{cell.name}{suffix}"
        if not digest or path.exists():
            continue
        source = _source_of(kind, cell, record.get("weights") or cell.name)
        with contextlib.suppress(OSError):  # what cannot be read stays missing
            if source is not None and attachment_is_whole(source, digest):
                write_bytes(path, read_regular(source))


def _source_of(kind: str, cell: CellFolder, weights: str) -> Path | None:
    """Return where a cell keeps its file of ``kind``: with it, or with the weights it measures."""
    folders = (cell.folder, cell.folder.parent / weights)
    return next((f / SOURCES[kind] for f in folders if (f / SOURCES[kind]).exists()), None)


def _copy_attachments(cell: CellFolder, record: dict[str, Any], folder: Path) -> Row:
    """Copy configuration, learning curve (of the weights) and errors beside the table.

    Return their digests.  A file that is not what its record says, or that cannot be read, is left
    out, with a warning.
    """
    weights = WeightsFolder(cell.folder.parent, record.get("weights") or cell.name)
    noted = {**((weights.record() or {}).get("digests", {})), **record.get("digests", {})}
    found: Row = {}
    for column, (kind, suffix) in ATTACHMENT_COLUMNS.items():
        name, path = SOURCES[kind], _source_of(kind, cell, weights.name)
        if path is None:
            continue
        try:
            content = read_regular(path)
        except OSError as error:
            print(f"warning: {path}: cannot be read ({error.strerror}); left out", file=sys.stderr)
            continue
        digest = hashlib.sha256(content).hexdigest()
        if record["status"] == "done" and noted.get(name, digest) != digest:
            print(f"warning: {path}: altered since it was written; left out", file=sys.stderr)
            continue
        write_bytes(folder / kind / f"{cell.name}{suffix}", content)
        found[column] = digest[:16]
    return found
