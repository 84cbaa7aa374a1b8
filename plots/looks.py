"""Colours, markers and dashes by which figures tell models and dimensions apart."""

from __future__ import annotations

from typing import Any

import matplotlib
import numpy as np
import pandas as pd

from plots import style
from plots.cells import Grid

MARKERS = ["o", "X", "P", "<", "*", "h"]  # all have a face, which `plots.limits` paints white
SIZES = {"X": 5.0, "P": 5.0, "*": 6.5}  # points; a smaller face of these is not seen
DASHES = ["-", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1))]


def row_look(row: str, grid: Grid) -> dict[str, Any]:
    """Return the look of a row: its model's, with marker and dashes of its own for a variant."""
    rows = grid.model_rows
    models = [str(grid.cells.loc[grid.cells["row"] == name, "model"].iloc[0]) for name in rows]
    place = rows.index(row)
    look, variant = style.look(models[place], models), models[:place].count(models[place])
    if variant:
        look |= {"marker": MARKERS[variant % len(MARKERS)], "linestyle": DASHES[variant % 4]}
    size = SIZES.get(look["marker"])
    return look | {"markersize": size} if size else look


def nested_row_looks(grid: Grid, cells: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Return the looks of the rows of ``cells``, open and one size smaller each.

    What coincides then lies one within the other, and all of it is seen.
    """
    rows = [row for row in grid.model_rows if (cells["row"] == row).any()]
    markers, lines = nested(len(rows), 6.5, 3.0), nested(len(rows), 2.0, 0.9)
    return {
        row: row_look(row, grid)
        | {"markersize": markers[i], "linewidth": lines[i], "markerfacecolor": "none"}
        for i, row in enumerate(rows)
    }


def variant_looks(grid: Grid) -> dict[str, dict[str, Any]]:
    """Return the looks of rows of which a model has several: its colour and marker for all of them,
    its own line for the first and another for each other, open and nested as in
    `nested_row_looks`."""
    rows = grid.model_rows
    models = [str(grid.cells.loc[grid.cells["row"] == row, "model"].iloc[0]) for row in rows]
    markers, lines = nested(len(rows), 6.5, 3.0), nested(len(rows), 2.0, 0.9)
    looks = {}
    for i, row in enumerate(rows):
        look, variant = style.look(models[i], models), models[:i].count(models[i])
        others = [dash for dash in DASHES if dash != look["linestyle"]]
        if variant:
            look["linestyle"] = others[(variant - 1) % len(others)]
        sizes = {"linewidth": lines[i], "markersize": markers[i], "markerfacecolor": "none"}
        looks[row] = look | sizes
    return looks


def dim_looks(dims: list[int]) -> dict[int, dict[str, Any]]:
    """Return colour, dashes, width and order per dimension: darker and thinner is larger.

    Thinner lines lie on wider ones, so that lines which coincide are all seen.
    """
    colors = matplotlib.colormaps[style.HEAT](np.linspace(0.0, 0.88, len(dims))[::-1])
    widths = nested(len(dims), 2.2, 0.9)
    return {
        dim: {"color": colors[i], "linestyle": DASHES[i % len(DASHES)], "linewidth": widths[i],
              "zorder": 2 + i / len(dims)}
        for i, dim in enumerate(dims)
    }  # fmt: skip


def nested(count: int, most: float, least: float) -> list[float]:
    """Return ``count`` sizes from ``most`` down to ``least``, all at ``least`` for one alone."""
    return np.linspace(most, least, count).tolist() if count > 1 else [least]
