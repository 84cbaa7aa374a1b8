"""What a sweep has not come to yet: named in the notes instead of drawn empty."""

from __future__ import annotations

import dataclasses

import pandas as pd

from plots import style
from plots.cells import Grid


def without_untried(grid: Grid) -> Grid:
    """Return the grid without the lines (sizes, as a rule) of which no model tried a cell.

    A column of which nothing was tried stays whole: its emptiness is what there is to see.
    """
    tried = grid.cells["state"] != "not run"
    in_line = tried.groupby([grid.cells["column"], grid.cells[grid.y_key]]).transform("any")
    in_column = tried.groupby(grid.cells["column"]).transform("any")
    untried = ~in_line & in_column
    if not untried.any():
        return grid
    told = []
    for column in grid.columns:
        lines = grid.cells.loc[untried & (grid.cells["column"] == column), grid.y_key].unique()
        if len(lines):
            values = ", ".join(map(str, sorted(lines)))
            name = "n" if grid.y_key == "size" else style.axis_label(grid.y_key)
            told.append((column, f"{name} = {values}"))
    return _without(grid, untried, told)


def without_wider(grid: Grid) -> Grid:
    """Return the grid without the D that are wider than all that were tried in their column.

    A column of which nothing was tried stays whole.
    """
    if grid.x_key != "dim":
        return grid
    dims, columns = grid.cells["x"], grid.cells["column"]
    widest = dims.where(grid.cells["state"] != "not run").groupby(columns).transform("max")
    wider = dims > widest.fillna(dims.max())
    told = {}
    for column in grid.columns:
        left_out = sorted(dims[wider & (columns == column)].unique())
        if left_out:
            told[column] = f"D = {', '.join(f'{value:g}' for value in left_out)}"
    if len(told) == len(grid.columns) and len(set(told.values())) == 1:
        told = {"": told[grid.columns[0]]}
    return _without(grid, wider, [*told.items()]) if told else grid


def without_untried_values(grid: Grid, **groupings: pd.Series) -> Grid:
    """Return the grid without the values of each grouping of its cells of which none was tried.

    A keyword names the setting whose values they are (``heads``, ``size``), or ``label`` where they
    name themselves.  A grid of which nothing was tried stays whole.
    """
    tried = grid.cells["state"] != "not run"
    if not tried.any():
        return grid
    untried, told = pd.Series(False, tried.index), []
    for setting, values in groupings.items():
        alone = ~tried.groupby(values).transform("any")
        found = values[alone].unique()
        told += [v if setting == "label" else style.setting_label(setting, v) for v in found]
        untried |= alone
    return _without(grid, untried, [("", words) for words in told]) if told else grid


def _without(grid: Grid, untried: pd.Series, told: list[tuple[str, str]]) -> Grid:
    return dataclasses.replace(grid, cells=grid.cells[~untried], untried=[*grid.untried, *told])
