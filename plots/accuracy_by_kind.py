"""Accuracy by kind of instance, as a table: a row per cell and kind, all seeds pooled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from plots import style
from plots.cells import KEYS, gather, records
from plots.curves import read_errors
from plots.text import csv_text

NAME = "accuracy_by_kind"


def draw(table: pd.DataFrame, plan: pd.DataFrame, experiment: Any, out: Path) -> list[Path]:
    """Write ``accuracy_by_kind.csv``; the records lie beside ``out``."""
    text = csv_text(kinds(table, plan, out.parent))
    return [style.write_text(text, out / f"{NAME}.csv")]


def kinds(table: pd.DataFrame, plan: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Return the cells' settings, kind, seeds, and the accuracy over ``n_test`` sequences of it.

    Cells without a record of kinds are left out.
    """
    grid = gather(table, plan)
    keys = [*KEYS, *(name for name in grid.rows if "." in str(name))]
    found = []
    for run in records(grid.rows[grid.rows["status"] == "done"][["point", "cell"]]):
        record = read_errors(folder, run.cell) or {}
        for kind, (right, count) in record.get("by_kind", {}).items():
            found.append((*run.point, kind, right, count))
    frame = pd.DataFrame(found, columns=[*keys, "kind", "right", "n_test"])
    pooled = frame.groupby([*keys, "kind"], sort=True).agg(
        seeds=("right", "size"), right=("right", "sum"), n_test=("n_test", "sum")
    )
    return pooled.assign(accuracy=pooled.pop("right") / pooled["n_test"]).reset_index()
