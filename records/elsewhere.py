"""Rows that another experiment's table holds of the same cells."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from common import UserError, write_bytes
from records.reading import ATTACHMENT_COLUMNS, attachment_is_whole, attachment_path
from records.table import Row, text_rows


def rows_elsewhere(folder: Path, cells: Iterable[str]) -> dict[str, tuple[Row, Path]]:
    """Return the done rows of ``cells`` in the tables beside ``folder``, and where each stands.

    Of two of one cell, the one finished later.  A damaged table is passed over.
    """
    wanted, found = set(cells), dict[str, tuple[Row, Path]]()
    for path in sorted(folder.parent.glob("*/results.csv")):
        if path.parent == folder:
            continue
        try:
            rows = text_rows(path)
        except UserError:
            continue
        for name in wanted & rows.keys():
            row, known = rows[name], found.get(name)
            later = known is None or row["finished_at"] > known[0]["finished_at"]
            if row["status"] == "done" and later:
                found[name] = row, path.parent
    return found


def copied(row: Row, source: Path, folder: Path) -> Row:
    """Copy the files of a row of ``source`` to ``folder``; return it without those altered."""
    row = dict(row)
    for column, (kind, suffix) in ATTACHMENT_COLUMNS.items():
        name = f"{row['cell']}{suffix}"
        path, target = attachment_path(source, kind, name), attachment_path(folder, kind, name)
        if not row.get(column) or path is None or target is None:
            continue
        if path.is_file() and attachment_is_whole(path, row[column]):
            write_bytes(target, path.read_bytes())
        else:
            row[column] = ""
    return row
