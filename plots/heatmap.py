"""Accuracy heatmaps (the paper's Figures 1, 2 and 3): dimension across, problem size upward.

Columns are tasks, rows are models.  Every planned cell is drawn: with its accuracy, or with a hatch
that says what became of it.  A line marks where 90 % is first reached; a second one where the paper
reached it, for the Arithmetic sizes of its Table 2.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from plots import paper, style
from plots.cells import Grid, gather, records
from plots.facets import legend_shape, write_footer
from plots.frontier import Requirement, requirements
from plots.words import footer, setting_text

STATE_LOOKS = {
    "failed": {"hatch": "xxxx", "facecolor": "#f4d9d0", "text": "✗"},
    "unfinished": {"hatch": "////", "facecolor": "#e8e8e8", "text": "…"},
    "not run": {"hatch": "....", "facecolor": "#ffffff", "text": "–"},
}
STATE_WORDS = {
    "failed": "✗ failed",
    "unfinished": "… unfinished (stopped by a time limit)",
    "not run": "– not run",
}
OURS: dict[str, Any] = {"color": "black", "linewidth": 1.8, "solid_capstyle": "butt"}
UNSURE: dict[str, Any] = {"color": "black", "linewidth": 1.8, "linestyle": (0, (1, 1))}
PAPER: dict[str, Any] = {"color": "#e4002b", "linewidth": 1.3, "linestyle": (0, (3, 1.5))}
CELL_HEIGHT = 0.235  # inches
CELL_WIDTH = 0.29  # inches, at least


def draw(table: pd.DataFrame, plan: pd.DataFrame, experiment: Any, out: Path) -> list[Path]:
    """Write ``heatmap.pdf`` and ``heatmap.png`` and return their paths."""
    return style.styled(style.save)(figure(table, plan, experiment), out, "heatmap")


@style.styled
def figure(table: pd.DataFrame, plan: pd.DataFrame, experiment: Any) -> Figure:
    """Return the heatmap; axes carry gids ``panel/<model>/<task>``."""
    grid = gather(table, plan, getattr(experiment, "facets", None))
    layout = _Layout(grid, footer([setting_text(grid)], grid, experiment), _legend_entries(grid))
    picture = layout.figure
    for y, row in enumerate(grid.model_rows):
        for x, column in enumerate(grid.columns):
            axes = layout.axes(x, y)
            axes.set_gid(f"panel/{row}/{column}")
            _draw_panel(axes, grid, column, row)
            _label_panel(axes, grid, column, row, x, y)
    layout.colorbar()
    layout.legend()
    write_footer(picture, layout.lines)
    return picture


class _Layout:
    """Places everything in inches, so that cells keep one size whatever their number."""

    GAP, RIGHT, TOP, BOTTOM = 0.62, 0.55, 0.26, 0.36

    def __init__(self, grid: Grid, footer: str, entries: list) -> None:
        label_lines = max(_row_label(row).count("\n") for row in grid.model_rows)
        self.left = 0.78 + 0.12 * label_lines
        self.entries = entries
        self.dims = [_values(grid, column, "x") for column in grid.columns]
        self.sizes = [_values(grid, column, "y") for column in grid.columns]
        count = len(self.dims)
        least = sum(len(dims) for dims in self.dims) * CELL_WIDTH
        edges = self.left + self.RIGHT + self.GAP * (count - 1)
        page = style.COLUMN_WIDTH if count == 1 and least + edges < 3.6 else style.PAGE_WIDTH
        self.width = max(page, least + edges)
        cell = min((self.width - edges) / sum(len(dims) for dims in self.dims), 0.6)
        self.widths = [cell * len(dims) for dims in self.dims]
        self.height_of_row = max(len(sizes) for sizes in self.sizes) * CELL_HEIGHT
        # A model's name is written upward: a panel of one or two sizes may be shorter than it.
        lines = [line for row in grid.model_rows for line in _row_label(row).splitlines()]
        longest = max(style.text_width(line, 8) for line in lines)
        self.pitch = max(self.height_of_row + 0.17, longest + 0.1)
        rows = len(grid.model_rows)
        self.lines = style.wrap(footer, self.width - 0.16, style.SMALL)
        widths = [style.text_width(entry.get_label(), style.SMALL) + 0.37 for entry in entries]
        self.legend_columns, legend_rows = legend_shape(widths, self.width - 0.1)
        self.legend_height = 0.06 + 0.135 * legend_rows
        self.foot = 0.06 + 0.105 * len(self.lines) + self.legend_height
        self.height = (
            self.TOP
            + rows * self.pitch
            - (self.pitch - self.height_of_row)
            + self.BOTTOM
            + self.foot
        )
        self.figure = style.new_figure(self.width, self.height)
        self.rows = rows

    def axes(self, x: int, y: int) -> Axes:
        left = self.left + sum(self.widths[:x]) + self.GAP * x
        height = len(self.sizes[x]) * CELL_HEIGHT
        bottom = self.height - self.TOP - y * self.pitch - height
        return self._add(left, bottom, self.widths[x], height)

    def colorbar(self) -> None:
        left = self.left + sum(self.widths) + self.GAP * (len(self.widths) - 1) + 0.1
        bottom = self.foot + self.BOTTOM
        axes = self._add(left, bottom, 0.09, self.height - self.TOP - bottom)
        axes.set_gid("colorbar")
        height = self.height - self.TOP - bottom
        ticks = [0, 25, 50, 75, 90, 100] if height > 1.2 else [0, 50, 100]
        mappable = ScalarMappable(Normalize(0, 100), style.HEAT)
        bar = self.figure.colorbar(mappable, cax=axes, ticks=ticks)
        bar.outline.set_linewidth(0.5)
        axes.set_title("%", pad=3, fontsize=6.5)

    def legend(self) -> None:
        if not self.entries:
            return
        self.figure.legend(
            handles=self.entries,
            loc="lower left",
            bbox_to_anchor=(0.04 / self.width, (self.foot - self.legend_height) / self.height),
            ncols=self.legend_columns,
            columnspacing=1.2,
            handlelength=2.2,
            labelspacing=0.4,
            borderaxespad=0.2,
        )

    def _add(self, left: float, bottom: float, width: float, height: float) -> Axes:
        box = (left / self.width, bottom / self.height, width / self.width, height / self.height)
        return self.figure.add_axes(box)


def _values(grid: Grid, column: str, key: str) -> list[Any]:
    cells = grid.cells[grid.cells["column"] == column]
    return sorted(cells[key].unique().tolist())


def _draw_panel(axes: Axes, grid: Grid, column: str, row: str) -> None:
    dims, sizes = _values(grid, column, "x"), _values(grid, column, "y")
    panel = grid.panel(column, row)
    values = np.full((len(sizes), len(dims)), np.nan)
    for cell in records(panel):
        values[sizes.index(cell.y), dims.index(cell.x)] = 100 * cell.accuracy
    axes.pcolormesh(
        np.arange(len(dims) + 1) - 0.5,
        np.arange(len(sizes) + 1) - 0.5,
        np.ma.masked_invalid(values),
        cmap=style.HEAT,
        norm=Normalize(0, 100),
        edgecolors="white",
        linewidth=0.4,
    )
    for cell in records(panel):
        _draw_cell(axes, cell, dims.index(cell.x), sizes.index(cell.y))
    _draw_frontiers(axes, grid, column, row)


def _draw_cell(axes: Axes, cell: Any, x: int, y: int) -> None:
    if cell.state != "done":
        look = STATE_LOOKS[cell.state]
        patch = Rectangle(
            (x - 0.5, y - 0.5),
            1,
            1,
            facecolor=look["facecolor"],
            hatch=look["hatch"],
            edgecolor="#8c8c8c",
            linewidth=0.4,
        )
        patch.set_gid(f"{cell.state}/{cell.y}/{cell.x}")
        axes.add_patch(patch)
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
        _text(axes, x, y, look["text"], cell, color="black", bbox=box, fontsize=6)
        return
    color = _readable_on(cell.accuracy)
    mark = "*" if cell.seeds < cell.seeds_planned else ""
    spread = cell.seeds > 1
    value = style.percent(cell.accuracy) + mark
    size = 6 if len(value) < 6 else 5.2
    _text(axes, x, y + (0.13 if spread else 0), value, cell, color=color, fontsize=size)
    if spread:
        small = f"{np.floor(100 * cell.accuracy_min):.0f}–{np.floor(100 * cell.accuracy_max):.0f}"
        artist = axes.text(x, y - 0.27, small, ha="center", va="center", fontsize=4.2, color=color)
        artist.set_gid(f"range/{cell.y}/{cell.x}")


def _text(axes: Axes, x: float, y: float, text: str, cell: Any, **look: Any) -> None:
    artist = axes.text(x, y, text, ha="center", va="center_baseline", **look)
    artist.set_gid(f"value/{cell.y}/{cell.x}")


def _readable_on(share: float) -> str:
    red, green, blue, _ = matplotlib.colormaps[style.HEAT](share)
    return "black" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.42 else "white"


def _frontier_edges(grid: Grid, column: str, row: str) -> tuple[list, list, list]:
    """Return per size where the 90 % frontier lies: all of it, its unsure part, the paper's."""
    dims, sizes = _values(grid, column, "x"), _values(grid, column, "y")
    panel = grid.panel(column, row)
    if (grid.x_key, grid.y_key) != ("dim", "size"):
        return [None] * len(sizes), [None] * len(sizes), [None] * len(sizes)
    needed = {item.size: item for item in requirements(panel)}
    edges = [_edge(needed.get(size), dims) for size in sizes]
    unsure = [
        edge if edge is not None and needed[size].open_below else None
        for size, edge in zip(sizes, edges, strict=True)
    ]
    return edges, unsure, _paper_edges(panel, sizes, dims)


def _edge(item: Requirement | None, dims: list[int]) -> float | None:
    """Return where the frontier crosses a row: left of the first D that reaches 90 %."""
    if item is None or item.state in ("not run", "incomplete"):
        return None
    return len(dims) - 0.5 if item.dim is None else dims.index(item.dim) - 0.5


def _paper_edges(panel: pd.DataFrame, sizes: list[int], dims: list[int]) -> list[float | None]:
    known: dict[int, int] = {}
    if len(panel):
        first = panel.iloc[0]
        if paper.table_2_applies(first["task"], first["format"], first["layers"]):
            known = paper.FRONTIER_DIM.get(first["model"], {})
    # A little to the right of the edge, so that our own line stays visible where both agree.
    return [
        sum(dim < known[size] for dim in dims) - 0.5 + 0.09 if size in known else None
        for size in sizes
    ]


def _draw_frontiers(axes: Axes, grid: Grid, column: str, row: str) -> None:
    edges, unsure, papers = _frontier_edges(grid, column, row)
    sure = [edge if doubt is None else None for edge, doubt in zip(edges, unsure, strict=True)]
    _step_line(axes, edges, sure, "frontier", OURS)
    _step_line(axes, edges, unsure, "frontier/unsure", UNSURE)
    _step_line(axes, papers, papers, "frontier/paper", PAPER)


def _step_line(axes: Axes, edges: list, shown: list, gid: str, look: dict) -> None:
    """Draw the rows of ``shown``, joined where neighbours are both known."""
    xs: list[float] = []
    ys: list[float] = []
    for y, edge in enumerate(shown):
        xs += [np.nan] if edge is None else [edge, edge]
        ys += [np.nan] if edge is None else [y - 0.5, y + 0.5]
    for y, pair in enumerate(itertools.pairwise(edges)):
        if None not in pair and (shown[y] is None) != (shown[y + 1] is None) and gid == "frontier":
            xs += [np.nan, *pair]
            ys += [np.nan, y + 0.5, y + 0.5]
    if np.isfinite(xs).any():
        halo = patheffects.Stroke(linewidth=look["linewidth"] + 1.2, foreground="white")
        effects = [halo, patheffects.Normal()]
        (line,) = axes.plot(xs, ys, clip_on=False, zorder=4, path_effects=effects, **look)
        line.set_gid(gid)


def _label_panel(axes: Axes, grid: Grid, column: str, row: str, x: int, y: int) -> None:
    dims, sizes = _values(grid, column, "x"), _values(grid, column, "y")
    axes.set_xlim(-0.5, len(dims) - 0.5)
    axes.set_ylim(-0.5, len(sizes) - 0.5)
    axes.set_xticks(range(len(dims)), [str(dim) for dim in dims])
    axes.set_yticks(range(len(sizes)), [_size_label(grid, column, size) for size in sizes])
    axes.tick_params(length=0, pad=2)
    axes.spines[:].set_visible(False)
    last = y == len(grid.model_rows) - 1
    axes.tick_params(labelbottom=last)
    if last:
        axes.set_xlabel(style.axis_label(grid.x_key), labelpad=2)
    if y == 0:
        axes.set_title(column, pad=4)
    if x == 0:
        axes.set_ylabel(_row_label(row), fontsize=8 if "," not in row else 6.5, labelpad=3)
    if grid.panel(column, row).empty:
        axes.text(
            0.5,
            0.5,
            "not planned",
            transform=axes.transAxes,
            ha="center",
            va="center",
            color="#666666",
        )


def _row_label(row: str) -> str:
    return row.replace(", ", ",\n")


def _size_label(grid: Grid, column: str, size: Any) -> str:
    if grid.y_key != "size":
        return style.setting_label(grid.y_key, size) or "–"
    cells = grid.cells[(grid.cells["column"] == column) & (grid.cells["size"] == size)]
    length = cells["max_len"].max()
    return f"n={size}" if np.isnan(length) else f"n={size}\nL={length:.0f}"


def _legend_entries(grid: Grid) -> list:
    edges = [
        _frontier_edges(grid, column, row) for column in grid.columns for row in grid.model_rows
    ]
    ours, unsure, papers = (
        [edge for panel in edges for edge in panel[kind] if edge is not None] for kind in range(3)
    )
    entries: list[Any] = []
    if len(ours) > len(unsure):
        label = "first D with ≥ 90 % (at the right edge: none)"
        entries.append(Line2D([], [], label=label, **OURS))
    if unsure:
        entries.append(Line2D([], [], label="first D known with ≥ 90 %, smaller D lack", **UNSURE))
    if papers:
        label = "first D with > 90 % in the paper (from its Table 2)"
        entries.append(Line2D([], [], label=label, **PAPER))
    for state, look in STATE_LOOKS.items():
        if (grid.cells["state"] == state).any():
            entries.append(
                Patch(
                    facecolor=look["facecolor"],
                    hatch=look["hatch"],
                    edgecolor="#8c8c8c",
                    label=STATE_WORDS[state],
                )
            )
    done = grid.cells[grid.cells["state"] == "done"]
    if (done["seeds"] < done["seeds_planned"]).any():
        entries.append(Line2D([], [], linestyle="", label="* fewer seeds than planned"))
    return entries
