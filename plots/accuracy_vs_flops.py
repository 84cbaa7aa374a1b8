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
from matplotlib.transforms import ScaledTranslation

from plots import style
from plots.cells import Grid, gather
from plots.labels import panels_of
from plots.layout import Layout
from plots.looks import nested_row_looks
from plots.paper import THRESHOLD
from plots.text import slugs
from plots.untried import without_untried
from plots.words import flops_unit, footer, missing_text, seeds_text, size_labels

NAME = "accuracy_vs_flops"
ASIDE = 1.9  # points between a point and its bar, and from one model's bar to the next's
WIDE = 0.02  # the least range that is drawn
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
    """Return a figure per task under its file's name; of a task without results there is none."""
    grid = without_untried(gather(table, plan, panels_of(experiment)))
    names = slugs(grid.columns)
    done = grid.cells[grid.cells["state"] == "done"]
    drawn = [column for column in names if (done["column"] == column).any()]
    return {f"{NAME}_{names[column]}": _figure(grid, column, experiment) for column in drawn}


def _figure(grid: Grid, column: str, experiment: Any) -> Figure:
    cells = grid.cells[grid.cells["column"] == column]
    labels = size_labels(cells)
    looks = nested_row_looks(grid, cells[cells["state"] == "done"])
    entries = [Line2D([], [], label=row, **look) for row, look in looks.items()]
    entries.append(Line2D([], [], label="90 %", **style.THRESHOLD_LINE))
    if cells["chance_accuracy"].notna().any():
        entries.append(
            Line2D([], [], label="chance: always the most frequent answer", **style.CHANCE_LINE)
        )
    most = float(np.nanmax(cells[list(COLUMNS.values())].fillna(0.0), initial=1.0))
    unit, name = flops_unit(most)
    layout = Layout(
        list(labels.values()),
        list(COLUMNS),
        entries,
        _footer(grid, cells, column, experiment),
        widths=2.0,
        x_label=f"{name} of one forward pass over L tokens",
        y_label="answer accuracy in percent",
    )
    for size, label in labels.items():
        for title, convention in COLUMNS.items():
            axes = layout.axes(label, title)
            part = cells[cells["size"] == size]
            style.percent_axis(axes)
            axes.axhline(100 * THRESHOLD, **style.THRESHOLD_LINE)
            axes.set_xscale("log")
            if part["chance_accuracy"].notna().any():
                axes.axhline(
                    100 * part["chance_accuracy"].mean(), gid="chance", **style.CHANCE_LINE
                )
            for place, (row, look) in enumerate(looks.items()):
                own = part[(part["row"] == row) & (part["state"] == "done")]
                _draw_model(axes, own, convention, unit, row, look)
                _draw_ranges(axes, own, convention, unit, f"range/{row}", look, place)
    style.plain_log(axes.xaxis)
    return layout.figure


def _draw_model(
    axes: Axes, done: pd.DataFrame, convention: str, unit: float, row: str, look: dict[str, Any]
) -> None:
    done = done.sort_values([convention, "dim"])
    flops, share = done[convention] / unit, 100 * done["accuracy"]
    axes.plot(flops, share, gid=f"cells/{row}", clip_on=False, **look | {"linestyle": ""})
    front = pareto(flops.to_numpy(), share.to_numpy())
    if len(front):
        axes.step(*front.T, where="post", gid=f"front/{row}", **look | {"marker": ""})


def _draw_ranges(
    axes: Axes, done: pd.DataFrame, convention: str, unit: float, gid: str, look: dict, place: int
) -> None:
    """Draw bars over the seeds, a little right of their points.

    Fronts rise at the points themselves, where a bar in the colour of its model would not be seen.
    """
    # Caps that meet would look like a piece of a front.
    several = done[done["accuracy_max"] - done["accuracy_min"] >= WIDE]
    if several.empty:
        return
    aside = ScaledTranslation(ASIDE * (place + 1) / 72, 0, axes.figure.dpi_scale_trans)
    share = 100 * several["accuracy"]
    spread = [share - 100 * several["accuracy_min"], 100 * several["accuracy_max"] - share]
    bars = axes.errorbar(several[convention] / unit, share, spread, fmt="none", capsize=1.3,
                         ecolor=look["color"], elinewidth=0.8, zorder=3, clip_on=False,
                         transform=axes.transData + aside)  # fmt: skip
    bars[2][0].set_gid(gid)


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
    spread = (
        " (bars, right of their points: minimum–maximum, where 2 % or more apart)"
        if (cells["seeds"] > 1).any()
        else ""
    )
    lines = [
        f"{column}. Lines: Pareto fronts, the best accuracy that so many FLOPs buy. "
        f"{seeds_text(cells).capitalize()}{spread}. {missing_text(cells)}"
    ]
    return footer(lines, grid, experiment, column)
