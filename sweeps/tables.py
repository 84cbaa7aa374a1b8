"""Tables of a sweep on a terminal: the plan, the summary."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from config.columns import described, settings_of, varying
from sweeps.cost import CostEstimate, pair_flops, training_flops
from sweeps.plan import Planned

Rows = list[tuple[dict[str, Any], dict[str, Any]]]


def console() -> Console:
    """Return a console of fixed width where the output is no terminal.

    It prints brackets and colons as they are: an error's text is not markup.
    """
    width = None if sys.stdout.isatty() else 160
    return Console(width=width, markup=False, emoji=False)


def rounded(value: float, digits: int = 3) -> str:
    """Return a number of so many significant digits, and never in powers of ten."""
    short = float(f"{value:.{digits}g}")
    return f"{short:,.0f}" if short >= 100 else f"{short:g}"


def duration(seconds: float) -> str:
    """Return seconds as a person says them: 40 s, 12 min, 3.5 h."""
    for unit, length in (("s", 1), ("min", 60)):
        if seconds < 100 * length:
            return f"{rounded(seconds / length, 2)} {unit}"
    return f"{rounded(seconds / 3600, 2)} h"


def print_plan(plan: Sequence[Planned], estimate: CostEstimate) -> None:
    """Print every cell with how it stands and what it is estimated to cost.

    FLOP/MHL² is the mixing of a pair of tokens in a layer and head, TFLOP the whole training.
    """
    table = Table()
    rows = _rows(plan)
    keys = varying(rows)
    names = [*_names(rows), "dim", "seed"]
    for column in ("cell", *map(_heading, names), *keys, "status"):
        table.add_column(column)
    for column in ("FLOP/MHL²", "TFLOP", "minutes"):
        table.add_column(column, justify="right")
    for planned, (which, settings) in zip(plan, rows, strict=True):
        told = [planned.cell.name, *(str(which[name]) for name in names)]
        told += [str(settings.get(key, "")) for key in keys]
        told.append(planned.status + (f": {planned.reason}" if planned.reason else ""))
        told.append(f"{pair_flops(planned.cell):.3g}")
        told.append(rounded(training_flops(planned.cell) / 1e12))
        table.add_row(*told, rounded(estimate.seconds(planned.cell) / 60))
    console().print(table)


def print_summary(plan: Sequence[Planned], records: Mapping[str, Any]) -> None:
    """Print answer accuracies against D, a line per whatever else differs, and the failures."""
    rows = _rows(plan)
    keys, names = varying(rows), _names(rows)
    dims = sorted({which["dim"] for which, _ in rows})
    lines: dict[tuple[str, ...], dict[int, list[str]]] = {}
    for planned, (which, settings) in zip(plan, rows, strict=True):
        key = (*(str(which[name]) for name in names), *(str(settings.get(k, "")) for k in keys))
        shown = _shown(planned, records.get(planned.cell.name))
        lines.setdefault(key, {}).setdefault(which["dim"], []).append(shown)
    table = Table(title="answer accuracy (seeds side by side)", title_justify="left")
    for column in (*map(_heading, names), *keys):
        table.add_column(column)
    for dim in dims:
        table.add_column(f"D={dim}", justify="right")
    for key, found in lines.items():
        table.add_row(*key, *("/".join(found.get(dim, [""])) for dim in dims))
    console().print(table)
    for planned in plan:
        if planned.status == "failed":
            console().print(f"failed: {planned.cell.name}: {planned.reason}")


def _rows(plan: Sequence[Planned]) -> Rows:
    return [(described(p.cell.config), settings_of(p.cell.resolved)) for p in plan]


def _names(rows: Rows) -> list[str]:
    """Return the standard columns to show: format and recipe only where they vary."""
    often_equal = [
        name for name in ("format", "recipe") if len({which[name] for which, _ in rows}) > 1
    ]
    return ["task", "size", "model", "layers", "heads", *often_equal]


def _heading(name: str) -> str:
    return {"size": "n", "dim": "D"}.get(name, name)


def _shown(planned: Planned, record: Any) -> str:
    if planned.status != "done" or record is None:
        return planned.status
    return f"{record['answer_accuracy']:.1%}"
