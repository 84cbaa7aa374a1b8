"""How far seeds scatter, and models compared on equal seeds.

``seeds`` has a row per cell: mean, standard deviation, count and extremes over its seeds.
``seeds_paired`` compares each two models at one D, seed by seed: equal seeds have the same data in
the same order, so their difference is freer of luck than that of two means.
"""

from __future__ import annotations

import itertools
import math
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from plots import style, tabular
from plots.cells import Grid, gather, records
from plots.tabular import Tabular
from plots.text import csv_text
from plots.words import notes_of

NAME = "seeds"
HEADER = ["task", "n", "D", "models", "seeds", "difference", "sd", "95 % interval", "better in"]
METHOD = (
    "Difference of answer accuracies in percentage points, first model less second, over seeds "
    "that both have done at the experiment's own rate; sd: of the differences; interval: Student's "
    "t; better in: seeds in which the first is better. Few seeds make wide intervals: three, 4.3 "
    "standard errors to either side."
)


def draw(table: pd.DataFrame, plan: pd.DataFrame, experiment: Any, out: Path) -> list[Path]:
    """Write ``seeds.csv`` and ``seeds_paired.csv``, ``.md`` and ``.tex``."""
    grid = gather(table, plan)
    frame = paired(grid)
    printed = printed_table(frame, grid, experiment)
    return [
        style.write_text(csv_text(spread(grid)), out / f"{NAME}.csv"),
        *tabular.write(printed.texts(frame), out, f"{NAME}_paired"),
    ]


def spread(grid: Grid) -> pd.DataFrame:
    """Return a row per measured cell; a standard deviation from two seeds on (n - 1)."""
    found = []
    for cell, shares in _shares(grid):
        found.append({
            "task": cell.column, "size": cell.size, "dim": cell.dim, "model": cell.row,
            "seeds": len(shares), "mean": round(statistics.fmean(shares.values()), 6),
            "sd": _sd(list(shares.values())), "median": statistics.median_low(shares.values()),
            "min": min(shares.values()), "max": max(shares.values()),
        })  # fmt: skip
    return pd.DataFrame(found, columns=[
        "task", "size", "dim", "model", "seeds", "mean", "sd", "median", "min", "max",
    ])  # fmt: skip


def paired(grid: Grid) -> pd.DataFrame:
    """Return a row per task, size, D and two models with at least two equal seeds."""
    cells = {(c.column, c.size, c.dim, c.row): shares for c, shares in _shares(grid)}
    places = dict.fromkeys(key[:3] for key in cells)
    found = []
    for place in sorted(places, key=lambda p: (grid.columns.index(p[0]), *p[1:])):
        for first, second in itertools.combinations(grid.model_rows, 2):
            one, other = (cells.get((*place, row), {}) for row in (first, second))
            equal = sorted(one.keys() & other.keys())
            if len(equal) > 1:
                differences = [one[seed] - other[seed] for seed in equal]
                models = {"model": first, "other_model": second}
                key = dict(zip(("task", "size", "dim"), place, strict=True))
                found.append(key | models | compared(differences))
    columns = ["task", "size", "dim", "model", "other_model", "seeds", "difference", "sd"]
    return pd.DataFrame(found, columns=[*columns, "low", "high", "better"])


def compared(differences: list[float]) -> dict[str, Any]:
    """Return mean, standard deviation, 95 % t interval and count of wins of paired differences."""
    n, mean, sd = len(differences), statistics.fmean(differences), _sd(differences)
    quantile = stdtrit(n - 1, 0.975)
    half = quantile * sd / math.sqrt(n)
    return {
        "seeds": n, "difference": round(mean, 6), "sd": sd, "low": round(mean - half, 6),
        "high": round(mean + half, 6), "better": sum(value > 0 for value in differences),
    }  # fmt: skip


def _shares(grid: Grid) -> list[tuple[Any, dict[int, float]]]:
    """Return each measured cell with its accuracies by seed, at the experiment's own rate."""
    done = grid.rows[grid.rows["status"] == "done"]
    by_point: dict[Any, dict[int, float]] = {}
    for point, seed, share in zip(
        done["point"], done["seed"], done["answer_accuracy"].astype(float), strict=True
    ):
        by_point.setdefault(point, {})[int(seed)] = share
    cells = records(grid.cells)
    return [(cell, by_point[cell.point]) for cell in cells if by_point.get(cell.point)]


def _sd(values: list[float]) -> float:
    return round(statistics.stdev(values), 6) if len(values) > 1 else float("nan")


def printed_table(frame: pd.DataFrame, grid: Grid, experiment: Any) -> Tabular:
    """Return the paired comparison as it is printed."""
    printed = [
        [
            line.task, str(line.size), str(line.dim), f"{line.model} − {line.other_model}",
            str(line.seeds), _points(line.difference), f"{100 * line.sd:.1f}",
            f"[{_points(line.low)}, {_points(line.high)}]", f"{line.better} of {line.seeds}",
        ]
        for line in records(frame)
    ]  # fmt: skip
    return Tabular(
        title=f"Models on equal seeds: {experiment.name}",
        label=tabular.label_of("seeds", experiment.name),
        caption="Models compared at equal D on equal seeds, by answer accuracy.",
        header=HEADER,
        rows=printed,
        notes=[METHOD, *notes_of(grid)],
        said=[] if printed else ["No two models share two seeds: no spread can be stated."],
        groups=3,
    )


def _points(share: float) -> str:
    return f"{100 * share:+.1f}".replace("-", "−") if not np.isnan(share) else ""
