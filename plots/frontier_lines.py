"""The lines of a heatmap: where 90 % is first reached, here and in the paper."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from plots import paper
from plots.budgets import YES, Budgets, of_grid
from plots.cells import Grid
from plots.frontier import UNMEASURED, Requirement, requirements_of

_HALO = [patheffects.Stroke(linewidth=2.8, foreground="white"), patheffects.Normal()]
_BLACK: dict[str, Any] = {"color": "black", "linewidth": 2.0, "path_effects": _HALO}
OURS = {**_BLACK, "solid_capstyle": "butt"}
UNSURE = {**_BLACK, "linestyle": (0, (1, 1))}
_CORE = patheffects.Stroke(linewidth=0.9, foreground="white")
LIMITED = {**OURS, "path_effects": [*_HALO, _CORE]}
LIMITED_UNSURE = {**UNSURE, "path_effects": [*_HALO, _CORE]}
# Thinner than ours and over it: where both agree, both are seen, and no digit is crossed.
PAPER: dict[str, Any] = {"color": "#ff2f4f", "linewidth": 1.1, "linestyle": (0, (3, 1.5))}
Edges = list[float | None]


def draw(axes: Axes, grid: Grid, column: str, row: str, budgets: Budgets) -> None:
    """Draw the panel's lines, with gids ``frontier``, ``frontier/unsure``, ``frontier/paper``.

    Where the budget limits it our line is hollow, ``frontier/limited[/unsure]``.
    """
    edges, unsure, papers = _edges(grid, column, row)
    sure = [edge if doubt is None else None for edge, doubt in zip(edges, unsure, strict=True)]
    _step_line(axes, edges, sure, "frontier", OURS)
    _step_line(axes, edges, unsure, "frontier/unsure", UNSURE)
    limited = _limited(grid, column, row, edges, budgets)
    for gid, look, wanted in (("", LIMITED, False), ("/unsure", LIMITED_UNSURE, True)):
        both = zip(limited, unsure, strict=True)
        shown = [edge if (doubt is not None) == wanted else None for edge, doubt in both]
        _step_line(axes, shown, shown, f"frontier/limited{gid}", look)
    right = axes.get_xlim()[1]  # wider D may be planned than are drawn
    within = [None if edge is None else min(edge, right) for edge in papers]
    _step_line(axes, within, within, "frontier/paper", PAPER)


def legend_entries(grid: Grid, budgets: Budgets) -> list[Any]:
    """Return handles for the lines that the heatmap of ``grid`` has."""
    places = [(column, row) for column in grid.columns for row in grid.model_rows]
    panels = [_edges(grid, *place) for place in places]
    unsure, papers = (
        [edge for panel in panels for edge in panel[kind] if edge is not None] for kind in (1, 2)
    )
    limits = [
        _limited(grid, *place, panel[0], budgets)
        for place, panel in zip(places, panels, strict=True)
    ]
    entries = []
    if any(_solid(panel, limited) for panel, limited in zip(panels, limits, strict=True)):
        label = "first D with ≥ 90 % (at the right edge: none)"
        entries.append(Line2D([], [], label=label, **OURS))
    if unsure:
        entries.append(
            Line2D(
                [], [], label="first D known with ≥ 90 %; some D just below has no result", **UNSURE
            )
        )
    if any(edge is not None for limited in limits for edge in limited):
        label = "hollow: limited by the budget (not reached at half of it)"
        entries.append(Line2D([], [], label=label, **LIMITED))
    if papers:
        label = "first D with > 90 % in the paper (its Table 2; at the right edge: wider)"
        entries.append(Line2D([], [], label=label, **PAPER))
    return entries


def _solid(panel: tuple[Edges, Edges, Edges], limited: Edges) -> bool:
    """Tell whether an edge of a panel is neither unsure nor limited by the budget."""
    lines = zip(*panel[:2], limited, strict=True)
    return any(edge is not None and doubt is None and limit is None for edge, doubt, limit in lines)


def budgets_of(grid: Grid, folder: Path | None) -> Budgets:
    """Return what limits the frontier; nothing where the axes have none."""
    return of_grid(grid, folder) if (grid.x_key, grid.y_key) == ("dim", "size") else {}


def confirmed_text(grid: Grid) -> list[str]:
    """Say, where a search's further runs moved or confirmed the line, by what rule it is drawn."""
    if not len(grid.trials) or grid.x_key != "dim":
        return []
    pairs = itertools.product(grid.columns, grid.model_rows)
    if not any(item.searched for pair in pairs for item in requirements_of(grid, *pair)):
        return []
    return [
        "Cells: the experiment's own learning rate. Where a search measured further seeds and "
        "rates, the line stands where the median seed reaches 90 % at its best rate."
    ]


def _edges(grid: Grid, column: str, row: str) -> tuple[Edges, Edges, Edges]:
    """Return per size where the 90 % frontier lies: all of it, its unsure part, the paper's."""
    if (grid.x_key, grid.y_key) != ("dim", "size"):
        return [], [], []
    cells = grid.cells[grid.cells["column"] == column]
    dims, sizes = sorted(cells["dim"].unique()), sorted(cells["size"].unique())
    panel = grid.panel(column, row)
    needed = {item.size: item for item in requirements_of(grid, column, row)}
    edges = [_edge(needed.get(size), dims) for size in sizes]
    unsure = [
        edge if edge is not None and needed[size].open_below else None
        for size, edge in zip(sizes, edges, strict=True)
    ]
    return edges, unsure, _paper_edges(panel, sizes, dims)


def _limited(grid: Grid, column: str, row: str, edges: Edges, budgets: Budgets) -> Edges:
    """Return the edges that the budget limits."""
    sizes = sorted(grid.cells.loc[grid.cells["column"] == column, "size"].unique())
    found = [budgets.get((column, row, int(size))) for size in sizes]
    return [
        edge if item is not None and item.limited == YES else None
        for edge, item in zip(edges, found, strict=False)
    ]


def _edge(item: Requirement | None, dims: list[int]) -> float | None:
    """Return where the frontier crosses a row: left of the first D that reaches 90 %."""
    if item is None or item.state in (*UNMEASURED, "incomplete"):
        return None
    return len(dims) - 0.5 if item.dim is None else dims.index(item.dim) - 0.5


def _paper_edges(panel: pd.DataFrame, sizes: list[int], dims: list[int]) -> Edges:
    known: dict[int, int] = {}
    if len(panel):
        first = panel.iloc[0]
        if paper.table_2_applies(first["task"], first["format"], first["layers"]):
            known = paper.FRONTIER_DIM.get(first["model"], {})
    return [sum(dim < known[n] for dim in dims) - 0.5 if n in known else None for n in sizes]


def _step_line(axes: Axes, edges: Edges, shown: Edges, gid: str, look: dict[str, Any]) -> None:
    """Draw the rows of ``shown``, joined where neighbours are both known."""
    xs: list[float] = []
    ys: list[float] = []
    for y, edge in enumerate(shown):
        xs += [np.nan] if edge is None else [edge, edge]
        ys += [np.nan] if edge is None else [y - 0.5, y + 0.5]
    for y, (low, high) in enumerate(itertools.pairwise(edges)):
        turns = (shown[y] is None) != (shown[y + 1] is None)
        if low is not None and high is not None and turns and gid == "frontier":
            xs += [np.nan, low, high]
            ys += [np.nan, y + 0.5, y + 0.5]
    if np.isfinite(xs).any():
        axes.plot(xs, ys, clip_on=False, zorder=4, gid=gid, **look)
