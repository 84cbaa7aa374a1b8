"""Reading ``results.csv``, so strictly that nothing goes on from a damaged table."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pandas as pd

from errors import UserError

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


def read(path: Path, allow_empty: bool = False) -> pd.DataFrame:
    """Return the results table at ``path``.

    Raises `UserError`, naming file, line and column, when it is missing, empty, damaged, lacks a
    column that the figures need, or holds something that cannot be.
    """
    table = _parsed(path)
    lacking = [name for name in REQUIRED if name not in table]
    if lacking:
        raise UserError(f"{path}: lacks the columns {', '.join(lacking)}")
    if table.empty and not allow_empty:
        raise UserError(f"{path}: has a header but no rows; nothing has been measured yet")
    for name in NUMBERS:
        if name in table:
            table[name] = _numeric(table[name], path)
    _require_keys(table, path)
    _require_values(table, path)
    for name in ("size", "layers", "dim", "seed"):
        table[name] = table[name].astype(int)
    return table


def _parsed(path: Path) -> pd.DataFrame:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: no such results table") from None
    except (OSError, UnicodeDecodeError) as error:
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
    try:
        reader = csv.reader(io.StringIO(text), strict=True)
        width = len(next(reader))
        for fields in reader:
            if fields and len(fields) != width:
                raise UserError(
                    f"{path}, line {reader.line_num}: has {len(fields)} fields, the header has "
                    f"{width}; is the file cut short?"
                )
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.line_num}: not a table ({error})") from None


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
    done = table["status"] == "done"
    for name in ("answer_accuracy", "flops_linear_layers", "flops_total"):
        _refuse(done & table[name].isna(), table[name], path, "is empty although status is done")
