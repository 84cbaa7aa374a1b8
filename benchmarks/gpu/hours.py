"""Expected GPU-hours of planned cells, from measured speeds.

    python -m benchmarks.gpu.hours --speed out/speed/2 --plan figure1.json paper.json

Training: every step of the budget (early stopping ends sooner), at the tokens/s measured for the
cell's model and D, at the nearest L, under the setting that is its recipe's (`paper`, else
`long`), eagerly and in the fastest mode measured. Side by side: divided by the largest gain that
several processes brought at the nearest D measured, for the setting that was measured so (`long`);
for any other the gain is unknown and counts as 1. Evaluation: at the speed of a model that
generates everything, the slowest there is. A cell without a measured speed is counted as such and
is in no sum.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.cells import config_from
from benchmarks.gpu.shared import Row, call, parser, print_table, read_json, write_json
from experiments.grid import describe

FITTING = ("setting", "model", "dim")


def main(argv: Sequence[str] | None = None) -> None:
    """Print the hours of every plan and write hours.json."""
    options = arguments(argv)
    rows = list(read_json(options.speed / "speed.json")["rows"].values())
    rows = [row for row in rows if row["status"] == "done"]
    plans = {str(path): expected(read_json(path), rows) for path in options.plan}
    write_json(options.out / "hours.json", plans)
    header = [
        "plan",
        "cells",
        "eager, h",
        "fastest, h",
        "side by side, h",
        "evaluation, h",
        "unknown",
    ]
    keys = ("cells", "eager", "fastest", "side_by_side", "evaluation", "unknown")
    print_table([[name, *(found[key] for key in keys)] for name, found in plans.items()], header)


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    result = parser(__doc__, "hours")
    result.add_argument("--speed", type=Path, required=True, help="--out folder of speed")
    result.add_argument("--plan", type=Path, nargs="+", required=True)
    return result.parse_args(argv)


def expected(plan: dict[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
    """Return the sums over a plan's cells, in hours."""
    sums = {"eager": 0.0, "fastest": 0.0, "side_by_side": 0.0, "evaluation": 0.0}
    unknown = 0
    for cell in plan["cells"]:
        hours = hours_of(cell, rows)
        if hours is None:
            unknown += 1
            continue
        for key in sums:
            sums[key] += hours[key]
    measured = len(plan["cells"]) > unknown
    known: dict[str, float | None] = {key: sums[key] if measured else None for key in sums}
    return {"cells": len(plan["cells"]), "unknown": unknown, **known}


def hours_of(cell: dict[str, Any], rows: Sequence[Row]) -> dict[str, float] | None:
    """Return the hours of one cell; None where its speed was not measured."""
    config = config_from(cell["config"])
    about = describe(config)
    setting = "paper" if about["recipe"] == "paper" else "long"
    wanted = {"setting": setting, "model": about["model"], "dim": about["dim"]}
    length = cell["mean_length"]
    fitting = [row for row in rows if row["kind"] == "train" and _fits(row, wanted)]
    eager = nearest([row for row in fitting if row["mode"] == "eager"], "length", length)
    tested = [row for row in rows if row["kind"] == "evaluate" and _fits(row, wanted)]
    evaluated = nearest(tested, "length", length)
    if eager is None or evaluated is None:
        return None
    same = [row for row in fitting if row["length"] == eager["length"]]
    fastest = max(row["tokens_per_second"] for row in same)
    steps = config.recipe.total_steps(config.data.train)
    tokens = steps * config.recipe.batch_size * length * about["layers"] / 3
    slow = tokens / eager["tokens_per_second"] / 3600
    return {
        "eager": slow,
        "fastest": tokens / fastest / 3600,
        "side_by_side": slow / gain(rows, setting, about["dim"]),
        "evaluation": evaluated["seconds"] / evaluated["sequences"] * config.data.test / 3600,
    }


def _fits(row: Row, wanted: dict[str, Any]) -> bool:
    return all(row[key] == wanted[key] for key in FITTING if key in row)


def nearest(rows: Sequence[Row], column: str, value: float) -> Row | None:
    """Return the row whose ``column`` is nearest to ``value`` in ratio."""
    return min(rows, key=lambda row: abs(math.log(row[column] / value)), default=None)


def gain(rows: Sequence[Row], setting: str, dim: int) -> float:
    """Return how many times the tokens/s of one process several reach at the nearest D; 1 where
    that was not measured with this ``setting`` or ``dim`` is wider than anything that was."""
    side = [row for row in rows if row["kind"] == "side" and row["setting"] == setting]
    if not side or dim > max(row["dim"] for row in side):
        return 1.0
    here = nearest(side, "dim", dim)
    assert here is not None
    rates = {r["processes"]: r["tokens_per_second"] for r in side if r["dim"] == here["dim"]}
    return max(rates.values()) / rates[1] if 1 in rates else 1.0


if __name__ == "__main__":
    call(main)
