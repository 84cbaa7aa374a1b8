"""Colours, markers and dashes by which figures tell models and dimensions apart."""

from __future__ import annotations

from typing import Any

import matplotlib
import numpy as np

from plots import style
from plots.cells import Grid

DASHES = ["-", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1))]


def row_look(row: str, grid: Grid) -> dict[str, Any]:
    """Return the look of a row: the model's, or one of its own where a model has several rows."""
    rows = grid.model_rows
    models = [str(grid.cells.loc[grid.cells["row"] == name, "model"].iloc[0]) for name in rows]
    place = rows.index(row)
    if len(set(models)) == len(rows):
        return style.look(models[place], models)
    return style.look(row, rows)


def dim_looks(dims: list[int]) -> dict[int, dict[str, Any]]:
    """Return colour and dashes per dimension: darker is larger; dashes for print in grey."""
    colors = matplotlib.colormaps[style.HEAT](np.linspace(0.88, 0.0, len(dims)))
    return {
        dim: {"color": colors[i], "linestyle": DASHES[i % len(DASHES)]}
        for i, dim in enumerate(dims)
    }
