"""What the cells of a heatmap show beside their numbers: a frame where 90 % is not sure."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from plots.cells import Grid, is_unsure, records

LINE_ROOM = 0.02  # inches at either side of a cell that a line along its edge may cover
FRAME_ROOM = 0.008  # what a frame needs beside that, both sides together
FRAME_HEIGHT, FRAME_PAD = 0.11, 0.06  # inches; the pad is what it is wider than its number
UNSURE = "framed: 95 % interval of a seed, or the seeds' range, holds 90 %"


def cell_size(axes: Axes) -> tuple[float, float]:
    """Return the width and height of a panel's cells in inches."""
    box, dpi = axes.get_window_extent(), axes.get_figure(root=True).dpi
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


def legend_entries(grid: Grid) -> list[Any]:
    """Return handles for the frames that the heatmap of ``grid`` has."""
    entries: list[Any] = []
    if any(map(is_unsure, records(grid.cells))):
        entries.append(Patch(facecolor="none", edgecolor="black", linewidth=0.5, label=UNSURE))
    return entries
