"""Accuracy against the FLOPs of one forward pass, both conventions side by side.

One figure per task, a row of panels per problem size; every measured cell is a point, and each
model's Pareto front (the best accuracy that so many FLOPs buy) is a line.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from plots import style
from plots.cells import Grid, gather
from plots.facets import Facets, slug
from plots.looks import row_look
from plots.paper import THRESHOLD
from plots.words import footer, missing_text, seeds_text, size_labels

NAME = "accuracy_vs_flops"
COLUMNS = {
    "linear layers (the paper's convention)": "flops_linear_layers",
    "total (mixing and all else counted)": "flops_total",
}


def draw(table: pd.DataFrame, plan: pd.DataFrame, experiment: Any, out: Path) -> list[Path]:
    """Write ``accuracy_vs_flops_<task>`` as PDF and PNG for each task."""
    drawn = figures(table, plan, experiment)
    return [p for name, item in drawn.items() for p in style.styled(style.save)(item, out, name)]


@style.styled
def figures(table: pd.DataFrame, plan: pd.DataFrame, experiment: Any) -> dict[str, Figure]:
    """Return a figure per task under its file's name."""
    grid = gather(table, plan)
    return {f"{NAME}_{slug(column)}": _figure(grid, column, experiment) for column in grid.columns}


def _figure(grid: Grid, column: str, experiment: Any) -> Figure:
    cells = grid.cells[grid.cells["column"] == column]
    labels = size_labels(cells)
    models = [row for row in grid.model_rows if (cells["row"] == row).any()]
    entries = [Line2D([], [], label=row, **row_look(row, grid)) for row in models]
    entries.append(Line2D([], [], color="#555555", linewidth=0.8, linestyle=":", label="90 %"))
    footer = _footer(grid, cells, column, experiment)
    facets = Facets(list(labels.values()), list(COLUMNS), entries, footer)
    for size, label in labels.items():
        for title, convention in COLUMNS.items():
            axes = facets.axes(label, title)
            axes.axhline(100 * THRESHOLD, color="#555555", linewidth=0.8, linestyle=":")
            for row in models:
                part = cells[(cells["row"] == row) & (cells["size"] == size)]
                _draw_model(axes, part, convention, row, row_look(row, grid))
            axes.set_xscale("log")
            axes.set_ylim(-4, 104)
    facets.label("GFLOPs of one forward pass over L tokens", "answer accuracy in percent")
    return facets.figure


def _draw_model(
    axes: Axes, part: pd.DataFrame, convention: str, row: str, look: dict[str, Any]
) -> None:
    done = part[part["state"] == "done"].sort_values([convention, "dim"])
    gflops, share = done[convention] / 1e9, 100 * done["accuracy"]
    if (done["seeds"] > 1).any():
        spread = [share - 100 * done["accuracy_min"], 100 * done["accuracy_max"] - share]
        axes.errorbar(gflops, share, spread, fmt="none", ecolor=look["color"], elinewidth=0.6)
    points = {"color": look["color"], "marker": look["marker"], "linestyle": ""}
    axes.plot(gflops, share, gid=f"cells/{row}", **points)
    front = pareto(gflops.to_numpy(), share.to_numpy())
    if len(front):
        line = {"color": look["color"], "linestyle": look["linestyle"]}
        axes.step(*front.T, where="post", gid=f"front/{row}", linewidth=1.0, **line)


def pareto(cost: np.ndarray, gain: np.ndarray) -> np.ndarray:
    """Return the points (cost, gain) that no other beats at equal or less cost, cheapest first."""
    order = np.lexsort((-gain, cost))
    best = -np.inf
    front = []
    for c, g in zip(cost[order], gain[order], strict=True):
        if g > best:
            front.append((c, g))
            best = g
    return np.array(front)


def _footer(grid: Grid, cells: pd.DataFrame, column: str, experiment: Any) -> str:
    spread = " (bars: minimum–maximum)" if (cells["seeds"] > 1).any() else ""
    lines = [
        f"{column}. Lines: Pareto fronts, the best accuracy that so many FLOPs buy. "
        f"{seeds_text(cells).capitalize()}{spread}. {missing_text(cells)}"
    ]
    return footer(lines, grid, experiment)
