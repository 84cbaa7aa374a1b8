"""What the scripts share: the clock, records that resume, the table at the end, errors."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from errors import RunError, UserError
from files import write_json
from models.linear import LinearAttention
from models.sparse import SparseAttention
from models.standard import StandardAttention
from records.provenance import machine, now, source
from training.precision import resolve_device

MIXERS: dict[str, Callable[..., Any]] = {
    "standard": StandardAttention,
    "linear": LinearAttention,
    "sparse": SparseAttention,
}
Row = dict[str, Any]
SETTLED = ("done", "out of memory")


class Clock:
    """The time that is left of ``minutes``, counted from now."""

    def __init__(self, minutes: float) -> None:
        self.end = time.monotonic() + 60 * minutes

    def left(self) -> float:
        """Seconds left; negative once over."""
        return self.end - time.monotonic()


class Record:
    """Rows by key in one JSON file, written whole after every row.

    Rows that ``given`` records hold of the same device are kept and not measured again, but for
    those that failed.
    """

    def __init__(self, path: Path, given: Iterable[Path], device: torch.device) -> None:
        self.path = path
        self.about = {**source(), **machine(device)}
        self.rows: dict[str, Row] = {}
        for earlier in given:
            for key, row in read_json(earlier).get("rows", {}).items():
                if row.get("device") == self.about["device"] and row["status"] in SETTLED:
                    self.rows[key] = row

    def measure(self, key: str, measured: Callable[[], Row]) -> None:
        """Add the row that ``measured`` returns; one that fails says why and stops no other."""
        try:
            row = {"status": "done", **measured()}
        except torch.OutOfMemoryError:
            row = {"status": "out of memory"}
        except Exception as error:
            row = {
                "status": f"failed: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
            }
        self.rows[key] = {**row, **self.about, "finished_at": now()}
        self.write()

    def write(self) -> None:
        """Write the file."""
        write_json(self.path, {"rows": self.rows})


def run_cases(
    record: Record, cases: dict[str, Callable[[], Row]], clock: Clock, reserve: float
) -> int:
    """Measure what is missing of ``cases`` while ``reserve`` seconds are left; return how many
    are still missing."""
    record.write()
    for key, case in cases.items():
        if key not in record.rows and clock.left() > reserve:
            started = time.monotonic()
            record.measure(key, case)
            print(f"{key}: {time.monotonic() - started:.1f} s", flush=True)
    return sum(key not in record.rows for key in cases)


def parser(description: str | None, prog: str) -> argparse.ArgumentParser:
    """Return a parser with the options that all scripts on the GPU share."""
    result = argparse.ArgumentParser(
        prog=f"python -m benchmarks.gpu.{prog}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument("--out", type=Path, required=True, help="folder for what is written")
    result.add_argument(
        "--from", dest="given", type=Path, nargs="*", default=[], metavar="FOLDER",
        help="--out folders of earlier calls, the latest last",
    )  # fmt: skip
    result.add_argument("--minutes", type=float, default=9.0, help="stop by itself within these")
    result.add_argument("--device", type=resolve_device, default="auto")
    return result


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in ``path``; `UserError` when it is missing or damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise UserError(f"{path}: damaged, not JSON ({error})") from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: not a record, must hold a JSON object")
    return content


def print_table(rows: Sequence[Sequence[Any]], header: Sequence[str]) -> None:
    """Print ``rows`` under ``header`` in columns; None is left empty, numbers to the right."""
    text = [list(header), *([_shown(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*text, strict=True)]
    for number, line in enumerate(text):
        values = list(header) if number == 0 or not rows else rows[number - 1]
        cells = [
            cell.rjust(width)
            if isinstance(value, int | float) or number == 0
            else cell.ljust(width)
            for cell, width, value in zip(line, widths, values, strict=True)
        ]
        print("  ".join(cells).rstrip())


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def call(main: Callable[[], object]) -> None:
    """Call ``main``; an error that a person can cause becomes one line and its exit status."""
    try:
        main()
    except (UserError, RunError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, UserError) else 1)
