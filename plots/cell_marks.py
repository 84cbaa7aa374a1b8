"""What the cells of a heatmap show beside their numbers: a frame, or a filled corner.

A frame says that it is not sure on which side of 90 % a cell is.  A filled corner says that the
median seed, by which the line goes, is on the other side than the mean, which the cell prints.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Polygon, Rectangle

from plots.cells import Grid, is_unsure, records
from plots.confirmed import group_of
from plots.frontier import requirements_of
from plots.paper import THRESHOLD

LINE_ROOM = 0.02  # inches at either side of a cell that a line along its edge may cover
FRAME_ROOM = 0.008  # what a frame needs beside that, both sides together
FRAME_HEIGHT, FRAME_PAD = 0.11, 0.06  # inches; the pad is what it is wider than its number
CORNER = 0.055  # inches: more than a line covers, less than reaches a number
UNSURE = "framed: 95 % interval of a seed, or the seeds' range, holds 90 %"
CORNERS = {
    "above": "◢ median seed ≥ 90 %, mean below",
    "below": "◤ mean ≥ 90 %, median seed below",
}


def cell_size(axes: Axes) -> tuple[float, float]:
    """Return the width and height of a panel's cells in inches."""
    box, dpi = axes.get_window_extent(), axes.figure.dpi
    return box.width / dpi / np.ptp(axes.get_xlim()), box.height / dpi / np.ptp(axes.get_ylim())


def room(framed: bool) -> float:
    """Return the inches that a cell needs beside its number."""
    return 2 * LINE_ROOM + FRAME_ROOM * framed


def draw_frame(axes: Axes, x: int, y: int, number: float, **look: Any) -> None:
    """Frame the number, so many inches wide, in the middle of a cell; it stays off the edges."""
    width, height = cell_size(axes)
    wide = min(number + FRAME_PAD, width - 2 * LINE_ROOM) / width
    high = FRAME_HEIGHT / height
    frame = Rectangle((x - wide / 2, y - high / 2), wide, high, fill=False, linewidth=0.5)
    frame.set(joinstyle="miter", **look)
    axes.add_patch(frame)


def draw_corner(axes: Axes, x: int, y: int, side: str, **look: Any) -> None:
    """Fill a corner of a cell that the line passes only where it turns back at smaller n."""
    width, height = cell_size(axes)
    sign = 1 if side == "above" else -1
    right, low = x + sign * 0.5, y - sign * 0.5
    legs = [(right - sign * CORNER / width, low), (right, low + sign * CORNER / height)]
    axes.add_patch(Polygon([(right, low), *legs], linewidth=0, zorder=5, **look))


def median_sides(grid: Grid, column: str, row: str) -> dict[tuple[Any, Any], str]:
    """Return by (y, x) on which side of 90 % a cell's median seed is, where its mean is not.

    Only sizes of which a search has measured further runs count: elsewhere the line goes by the
    mean.
    """
    if (grid.x_key, grid.y_key) != ("dim", "size"):
        return {}
    panel, found = grid.panel(column, row), {}
    for item in requirements_of(grid, column, row):
        cells = panel[panel["size"] == item.size]
        group = group_of(cells, grid.trials) if item.searched else None
        reaches = {width.dim: width.reaches for width in group.widths} if group else {}
        for cell in records(cells[cells["state"] == "done"]):
            reached = reaches.get(cell.dim)
            if reached is not None and reached != (cell.accuracy >= THRESHOLD):
                found[cell.y, cell.x] = "above" if reached else "below"
    return found


def legend_entries(grid: Grid) -> list[Any]:
    """Return handles for the frames and corners that the heatmap of ``grid`` has."""
    entries: list[Any] = []
    if any(map(is_unsure, records(grid.cells))):
        entries.append(Patch(facecolor="none", edgecolor="black", linewidth=0.5, label=UNSURE))
    panels = [median_sides(grid, c, r) for c in grid.columns for r in grid.model_rows]
    sides = {side for panel in panels for side in panel.values()}
    labels = [label for side, label in CORNERS.items() if side in sides]
    return entries + [Line2D([], [], linestyle="", label=label) for label in labels]
