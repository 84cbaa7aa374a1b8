"""The lines of a heatmap: where 90 % is first reached, here and in the paper."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from plots import paper
from plots.budgets import UNKNOWN, YES, Budgets, of_grid
from plots.cells import Grid
from plots.frontier import UNMEASURED, Requirement, requirements_of
from plots.text import sizes_text

_HALO = [patheffects.Stroke(linewidth=2.8, foreground="white"), patheffects.Normal()]
_BLACK: dict[str, Any] = {"color": "black", "linewidth": 2.0, "path_effects": _HALO}
OURS = {**_BLACK, "solid_capstyle": "butt"}
UNSURE = {**_BLACK, "linestyle": (0, (1, 1))}
_CORES = {YES: "white", UNKNOWN: "#a8a8a8"}
_PREFIXES = {YES: "frontier/limited", UNKNOWN: "frontier/perhaps"}
_CORE_WORDS = {
    YES: "hollow: limited by the budget (not reached at half of it)",
    UNKNOWN: "grey core: not known whether the budget limits it",
}
# Thinner than ours and over it: where both agree, both are seen, and no digit is crossed.
PAPER: dict[str, Any] = {"color": "#ff2f4f", "linewidth": 1.1, "linestyle": (0, (3, 1.5))}
Edges = list[float | None]


def draw(axes: Axes, grid: Grid, column: str, row: str, budgets: Budgets) -> None:
    """Draw the panel's lines, with gids ``frontier``, ``frontier/unsure``, ``frontier/paper``.

    Where the budget limits it our line is hollow, ``frontier/limited[/unsure]``; where that is not
    known its core is grey, ``frontier/perhaps[/unsure]``.
    """
    edges, unsure, papers = _edges(grid, column, row)
    sure = [edge if doubt is None else None for edge, doubt in zip(edges, unsure, strict=True)]
    _step_line(axes, edges, sure, "frontier", OURS)
    _step_line(axes, edges, unsure, "frontier/unsure", UNSURE)
    for limit, prefix in _PREFIXES.items():
        cored = _limited(grid, column, row, edges, budgets, limit)
        for gid, base, wanted in (("", OURS, False), ("/unsure", UNSURE, True)):
            both = zip(cored, unsure, strict=True)
            shown = [edge if (doubt is not None) == wanted else None for edge, doubt in both]
            _step_line(axes, shown, shown, f"{prefix}{gid}", _cored(base, limit))
    right = axes.get_xlim()[1]  # wider D may be planned than are drawn
    within = [None if edge is None else min(edge, right) for edge in papers]
    _step_line(axes, within, within, "frontier/paper", PAPER)


def _cored(base: Mapping[str, Any], limit: str) -> dict[str, Any]:
    core = patheffects.Stroke(linewidth=0.9, foreground=_CORES[limit])
    return {**base, "path_effects": [*_HALO, core]}


def legend_entries(grid: Grid, budgets: Budgets) -> list[Any]:
    """Return handles for the lines that the heatmap of ``grid`` has."""
    places = list(itertools.product(grid.columns, grid.model_rows))
    panels = {place: _edges(grid, *place) for place in places}
    ours, unsure, papers = (any(_some(p[kind]) for p in panels.values()) for kind in range(3))
    told = [(OURS, _least(grid, places))] if ours else []
    told += [(UNSURE, "dotted: some D just below has no result")] if unsure else []
    told += [
        (_cored(OURS, limit), words)
        for limit, words in _CORE_WORDS.items()
        if any(_some(_limited(grid, *p, panels[p][0], budgets, limit)) for p in places)
    ]
    wider = "least D with > 90 % in the paper (its Table 2; at the right edge: wider)"
    told += [(PAPER, wider)] if papers else []
    return [Line2D([], [], label=label, **look) for look, label in told]


def _some(edges: Edges) -> bool:
    return any(edge is not None for edge in edges)


def _least(grid: Grid, places: Iterable[tuple[str, str]]) -> str:
    """Say what our line is: of means, or of medians where a search has measured further runs."""
    searched = any(item.searched for place in places for item in requirements_of(grid, *place))
    which = "least D whose median seed has ≥ 90 %" if searched else "least D with ≥ 90 %"
    return f"{which} (at the right edge: none)"


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


def lineless_text(grid: Grid) -> list[str]:
    """Name the rows that have results and no line: none reaches 90 %, and some have not run."""
    if (grid.x_key, grid.y_key) != ("dim", "size"):
        return []
    places = itertools.product(grid.columns, grid.model_rows)
    open_ended = [
        (column, row, item.size)
        for column, row in places
        for item in requirements_of(grid, column, row)
        if item.state == "incomplete"
    ]
    if not open_ended:
        return []
    return [f"No line: 90 % is not reached, and some D lack a result: {sizes_text(open_ended)}."]


def _edges(grid: Grid, column: str, row: str) -> tuple[Edges, Edges, Edges]:
    """Return per size where the 90 % frontier lies: all of it, its unsure part, the paper's."""
    if (grid.x_key, grid.y_key) != ("dim", "size"):
        return [], [], []
    cells = grid.cells[grid.cells["column"] == column]
    dims, sizes = sorted(cells["dim"].unique()), sorted(cells["size"].unique())
    panel = grid.panel(column, row)
    needed = {item.size: item for item in requirements_of(grid, column, row)}
    edges = [_edge(needed.get(size), dims, panel[panel["size"] == size]) for size in sizes]
    unsure = [
        edge if edge is not None and needed[size].open_below else None
        for size, edge in zip(sizes, edges, strict=True)
    ]
    return edges, unsure, _paper_edges(panel, sizes, dims)


def _limited(
    grid: Grid, column: str, row: str, edges: Edges, budgets: Budgets, limit: str
) -> Edges:
    """Return the edges of which it is so (``limit``) that the budget limits them."""
    sizes = sorted(grid.cells.loc[grid.cells["column"] == column, "size"].unique())
    found = [budgets.get((column, row, int(size))) for size in sizes]
    return [
        edge if item is not None and item.limited == limit else None
        for edge, item in zip(edges, found, strict=False)
    ]


def _edge(item: Requirement | None, dims: list[int], planned: pd.DataFrame) -> float | None:
    """Return where the frontier crosses a row: left of the first D that reaches 90 %.

    Where none does it is right of the last that is planned for this row.
    """
    if item is None or item.state in (*UNMEASURED, "incomplete"):
        return None
    if item.dim is None:
        return dims.index(int(planned["dim"].max())) + 0.5
    return dims.index(item.dim) - 0.5


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
