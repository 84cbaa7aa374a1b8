"""Where generated chains break: the share of chains still right after each position and each step.

Per task a figure by position (tokens after the prompt) and one by chain step (an expression, a row
of the matrix, a number); panels by problem size and model, a line per dimension.  The share is the
Kaplan-Meier estimate, the product over places of 1 - first mistakes / chains that came there, which
is right although chains differ in length.  ``error_kinds.csv`` tells how often answer and chain
disagree.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from plots import style
from plots.aligned import KEYS
from plots.cells import Grid, gather, records
from plots.curves import read_errors
from plots.labels import panels_of
from plots.layout import Layout
from plots.looks import dim_looks
from plots.text import csv_text, slugs
from plots.words import footer, seeds_text, size_labels

NAME = "error_positions"
KINDS = {
    "": ("by_position", "position in the chain (tokens after the prompt)"),
    "_steps": ("by_step", "chain step"),
}


def draw(table: pd.DataFrame, plan: pd.DataFrame, experiment: Any, out: Path) -> list[Path]:
    """Write ``error_positions[_steps]_<task>`` and ``error_kinds.csv``; records lie beside out."""
    drawn = figures(table, plan, experiment, out.parent)
    save = style.styled(style.save)
    paths = [path for name, item in drawn.items() for path in save(item, out, name)]
    text = csv_text(error_kinds(table, plan, out.parent))
    return [*paths, style.write_text(text, out / "error_kinds.csv")]


def error_kinds(table: pd.DataFrame, plan: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Return how often answer and chain disagree, a row per cell and seed with a record."""
    names = ["answer_right_chain_wrong", "answer_wrong_chain_right"]
    grid = gather(table, plan)
    others = [name for name in grid.rows if "." in str(name)]
    columns = [*KEYS, *others, "seed", "cell", "n_test", *names]
    rows = []
    for run in grid.rows.to_dict("records"):
        record = read_errors(folder, run["cell"])
        if record is not None:
            row = {name: run.get(name, np.nan) for name in columns[: -len(names)]}
            rows.append(row | {name: record.get(name, np.nan) for name in names})
    return pd.DataFrame(rows, columns=columns)


def survival(places: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return places and the share of chains still right after each (Kaplan-Meier).

    ``places`` has rows [place, first mistakes there, chains that came there].
    """
    rows = np.array(sorted(places), float).reshape(-1, 3)
    rows = rows[rows[:, 2] > 0]
    return rows[:, 0], np.cumprod(1 - rows[:, 1] / rows[:, 2])


def pooled(found: list[list[list[int]]]) -> list[list[int]]:
    """Add the counts of several seeds, place by place."""
    total: dict[int, list[int]] = {}
    for places in found:
        for place, missed, reached in places:
            entry = total.setdefault(place, [0, 0])
            entry[0] += missed
            entry[1] += reached
    return [[place, *entry] for place, entry in sorted(total.items())]


@style.styled
def figures(
    table: pd.DataFrame, plan: pd.DataFrame, experiment: Any, folder: Path
) -> dict[str, Figure]:
    """Return the figures under their files' names; ``folder`` holds ``errors/``."""
    grid = gather(table, plan, panels_of(experiment))
    found = {run.cell: read_errors(folder, run.cell) for run in records(grid.rows)}
    return {
        f"{NAME}{kind}_{slug}": _figure(grid, column, found, names, experiment)
        for column, slug in slugs(grid.columns).items()
        for kind, names in KINDS.items()
    }


def _figure(
    grid: Grid, column: str, found: dict[str, Any], names: tuple[str, str], experiment: Any
) -> Figure:
    cells = grid.cells[grid.cells["column"] == column]
    sizes, models = size_labels(cells), [r for r in grid.model_rows if r in set(cells["row"])]
    looks = dim_looks(sorted(int(dim) for dim in cells["dim"].unique()))
    entries = [Line2D([], [], label=f"D = {dim}", **look) for dim, look in looks.items()]
    layout = Layout(
        list(sizes.values()),
        models,
        entries,
        _footer(grid, column, experiment),
        gap=(0.14, 0.26),
        x_label=names[1],
        y_label="chains still right, percent",
        share_x="row",
    )
    runs = grid.runs(column)
    for group, part in runs[runs["status"] == "done"].groupby(["size", "row", "dim"]):
        key: Any = group
        size, row, dim = key
        places = [found[cell][names[0]] for cell in part["cell"] if found[cell] is not None]
        x, share = survival(pooled(places))
        if len(x):
            axes = layout.axes(sizes[size], row)
            axes.step(x, 100 * share, where="mid", gid=f"{dim}", **looks[dim])
    for axes in layout.panels.values():
        style.percent_axis(axes)
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        if not axes.lines:
            style.say_in(axes, "no records")
    return layout.figure


def _footer(grid: Grid, column: str, experiment: Any) -> str:
    cells = grid.cells[grid.cells["column"] == column]
    pooling = "pooled over seeds, " if (cells["seeds"] > 1).any() else ""
    lines = [
        f"{column}: share of test chains without a mistake so far (Kaplan–Meier), free greedy "
        f"generation; {pooling}{seeds_text(cells).replace('mean of ', '')}."
    ]
    return footer(lines, grid, experiment, column)
