"""Reading ``results.csv``, so strictly that nothing goes on from a damaged table."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from common import UserError, read_regular, sha256_of

REQUIRED = [
    "task",
    "size",
    "max_len",
    "model",
    "layers",
    "dim",
    "seed",
    "recipe",
    "status",
    "answer_accuracy",
    "flops_linear_layers",
    "flops_total",
    "cell",
]
KEYS = ["task", "size", "model", "layers", "dim", "seed", "status", "cell"]
INTEGERS = set(
    """
    size max_len layers heads dim seed n_test steps steps_to_90 params flops_linear_layers
    flops_total flops_training state_bytes
    """.split()
)
NUMBERS = """
    size max_len layers heads dim seed answer_accuracy answer_accuracy_low answer_accuracy_high
    chain_exact_match chance_accuracy n_test steps steps_to_90 seconds_to_90 train_seconds
    eval_seconds params flops_linear_layers flops_total flops_training state_bytes padded_share
""".split()
SHARES = [name for name in NUMBERS if "accuracy" in name or name == "chain_exact_match"]
STATUSES = ("done", "failed", "unfinished")
ATTACHMENT_COLUMNS = {
    "config_digest": ("configs", ".yaml"),
    "curve_digest": ("curves", ".csv"),
    "errors_digest": ("errors", ".json"),
}
REMEDY = "python -m records experiment={} rebuilds the table from runs/"


def read(path: Path, allow_empty: bool = False) -> pd.DataFrame:
    """Return the results table at ``path``.

    Raises `UserError`, naming file, line and column, when it is missing, empty, damaged, lacks a
    column that the figures need, or holds something that cannot be.
    """
    table = _parsed(path)
    require_columns(table, path)
    if table.empty and not allow_empty:
        raise UserError(f"{path}: has a header but no rows; nothing has been measured yet")
    require_rows(table, path)
    for name in ("size", "layers", "dim", "seed"):
        table[name] = table[name].astype(int)
    return table


def require_columns(table: pd.DataFrame, path: Path) -> None:
    """Raise `UserError` where a column is missing that figures need."""
    lacking = [name for name in REQUIRED if name not in table]
    if lacking:
        raise UserError(f"{path}: lacks the columns {', '.join(lacking)}")


def require_rows(table: pd.DataFrame, path: Path) -> None:
    """Raise `UserError` for the first row that no measurement can have written."""
    for name in NUMBERS:
        if name in table:
            table[name] = _numeric(table[name], path)
    _require_keys(table, path)
    _require_values(table, path)


def _parsed(path: Path) -> pd.DataFrame:
    try:
        text = read_regular(path).decode()
    except FileNotFoundError:
        raise UserError(f"{path}: no such results table") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: cannot be read as a table ({error})") from None
    if not text.strip():
        raise UserError(f"{path}: is empty, not even a header")
    _require_whole_lines(text, path)
    try:
        # Everything as text first: only so can a fault be told with its line and words.
        table = pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False, na_values=[""])
    except ValueError as error:
        raise UserError(f"{path}: not a table ({' '.join(str(error).split())})") from None
    return table


def _require_whole_lines(text: str, path: Path) -> None:
    """pandas fills a short line up in silence; here it means a file cut short or edited badly."""
    for number, fault, _ in lines(text):
        if fault:
            raise UserError(f"{path}, line {number}: {fault}; {REMEDY.format(path.parent.name)}")


def lines(text: str) -> Iterator[tuple[int, str, dict[str, str]]]:
    """Yield of every row the number of its line, what is wrong with the line, and its values."""
    reader = csv.reader(io.StringIO(text), strict=True)
    header: list[str] = []
    while True:
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield reader.line_num, f"not a line of a table ({error})", {}
            continue
        if not header:
            header = fields
            twice = [name for name in header if header.count(name) > 1]
            if twice:
                yield reader.line_num, f"two columns {twice[0]}", {}
        elif fields and len(fields) != len(header):
            told = f"has {len(fields)} fields, the header has {len(header)}; is the file cut short?"
            yield reader.line_num, told, {}
        elif fields:
            row = dict(zip(header, fields, strict=True))
            altered = "digest" in row and row["digest"] != row_digest(row)
            yield reader.line_num, "altered since it was written" if altered else "", row


def row_digest(row: Mapping[str, str]) -> str:
    """Return 16 hexadecimal digits that tell whether a row is as it was written.

    They are the first of the SHA-256 of its values under their columns, but for empty ones.
    """
    text = "\n".join(f"{k}={row[k]}" for k in sorted(row) if row[k] and k != "digest")
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def require_attachments(folder: Path, table: pd.DataFrame) -> None:
    """Raise `UserError` where a file beside the table is not the one that came with its row.

    Rows of older versions have no digests of their files.
    """
    for name, (kind, suffix) in ATTACHMENT_COLUMNS.items():
        if name not in table:
            continue
        noted = table[table[name].notna()]
        for cell, digest in zip(noted["cell"], noted[name], strict=True):
            path = attachment_path(folder, kind, f"{cell}{suffix}")
            if not attachment_is_whole(path, str(digest)):
                raise UserError(
                    f"{path}: altered since it was written; {REMEDY.format(folder.name)}"
                )


def lost_attachments(folder: Path, table: pd.DataFrame) -> dict[str, list[str]]:
    """Return, by kind, the cells whose row names a file that is not beside the table."""
    lost: dict[str, list[str]] = {}
    for name, (kind, suffix) in ATTACHMENT_COLUMNS.items():
        noted = table[table[name].notna()] if name in table else table.iloc[:0]
        paths = {cell: attachment_path(folder, kind, f"{cell}{suffix}") for cell in noted["cell"]}
        lost[kind] = [cell for cell, path in paths.items() if path is None or not path.exists()]
    return lost


def attachment_path(folder: Path, kind: str, name: str) -> Path | None:
    """Return where the file ``name`` of one kind lies beside a table; None where none can.

    The name comes from a table, which may be anyone's, and must not lead out of the folder.
    """
    plain = name.isprintable() and not {"/", "\\"} & set(name) and len(name.encode()) < 256
    return folder / kind / name if plain else None


def attachment_is_whole(path: Path | None, digest: str) -> bool:
    """Tell whether the file has the digest that its row notes, or is not there at all."""
    return path is None or not path.exists() or sha256_of(path).startswith(digest)


def _numeric(column: pd.Series, path: Path) -> pd.Series:
    numbers = pd.to_numeric(column, errors="coerce").astype(float)
    _refuse(numbers.isna() & column.notna(), column, path, "is no number")
    return numbers


def _refuse(wrong: pd.Series, column: pd.Series, path: Path, why: str) -> None:
    """Name the first line where ``wrong`` holds; the header is line 1."""
    places = np.flatnonzero(wrong)
    if len(places):
        value = column.iloc[places[0]]
        shown = column.name if pd.isna(value) else f"{column.name}={value}"
        raise UserError(f"{path}, line {places[0] + 2}: {shown} {why}")


def _require_keys(table: pd.DataFrame, path: Path) -> None:
    for name in KEYS:
        _refuse(table[name].isna(), table[name], path, "is empty; is the line cut short?")
    twice = f"has a row already; {REMEDY.format(path.parent.name)}"
    _refuse(table["cell"].duplicated(), table["cell"], path, twice)
    for name in ("size", "layers", "dim", "seed"):
        wrong = (table[name] % 1 != 0) | (table[name] < 0)
        _refuse(wrong, table[name], path, "is no whole number >= 0")


def _require_values(table: pd.DataFrame, path: Path) -> None:
    known = table["status"].isin(STATUSES)
    _refuse(~known, table["status"], path, f"is none of {', '.join(STATUSES)}")
    for name in SHARES:
        if name in table:
            wrong = (table[name] < 0) | (table[name] > 1)
            _refuse(wrong, table[name], path, "is not between 0 and 1")
    if "answer_accuracy_low" in table and "answer_accuracy_high" in table:
        share = table["answer_accuracy"]
        # The interval of 0 of 1,000 begins at 2e-19: its formula rounds.
        below = share < table["answer_accuracy_low"] - 1e-9
        outside = below | (share > table["answer_accuracy_high"] + 1e-9)
        _refuse(outside, share, path, "lies outside of its own interval")
    done = table["status"] == "done"
    for name in ("answer_accuracy", "flops_linear_layers", "flops_total"):
        _refuse(done & table[name].isna(), table[name], path, "is empty although status is done")
