"""Accuracy heatmaps (the paper's Figures 1, 2 and 3): dimension across, problem size upward.

Columns are tasks, rows are models.  Every planned cell is drawn: with its accuracy, or with a hatch
that says what became of it; sizes that no model has tried yet, and D wider than all that were tried
in their column, are named below.  A line marks where 90 % is first reached; a second one where the
paper reached it, for the Arithmetic sizes of its Table 2.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from plots import cell_marks, frontier_lines, style
from plots.budgets import sentences, trained_size
from plots.cells import Grid, gather, is_unsure, records
from plots.layout import TICKS, Layout
from plots.text import text_width, wrap
from plots.untried import without_untried, without_wider
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
HATCH = {"edgecolor": "#8c8c8c", "linewidth": 0.4}
TICK_SIZE, VALUE_SIZE = 6.5, 6.5  # points
TICK_PAD = 0.045  # inches between tick labels and panel: a line along its edge takes some of it
MIN_CELL, MAX_CELL = 0.19, 0.6  # inches
CELL_HEIGHT, SPREAD_HEIGHT = 0.235, 0.34  # inches, for one number and for three
SPREAD = 0.105  # inches between the numbers of a cell
LOW_GAP = 0.06  # inches between panels of one row
ROOMY, TIGHT = 0.08, 0.03  # inches between a panel and the tick labels right of it


def draw(table: pd.DataFrame, plan: pd.DataFrame, experiment: Any, out: Path) -> list[Path]:
    """Write ``heatmap.pdf`` and ``heatmap.png`` and return their paths."""
    picture = figure(table, plan, experiment, out.parent)
    return style.styled(style.save)(picture, out, "heatmap")


@style.styled
def figure(
    table: pd.DataFrame, plan: pd.DataFrame, experiment: Any, folder: Path | None = None
) -> Figure:
    """Return the heatmap; axes carry gids ``panel/<model>/<task>``; ``folder`` holds the curves."""
    planned = without_untried(gather(table, plan, getattr(experiment, "facets", None)))
    grid = without_wider(planned)
    budgets = frontier_lines.budgets_of(planned, folder)
    lines = [setting_text(grid), *sentences(budgets), *frontier_lines.confirmed_text(planned)]
    lines += frontier_lines.lineless_text(planned)
    lines += _trained_on(grid, folder)
    lines += ["Blank: not planned."] if _has_gaps(grid) else []
    entries = [*_state_entries(grid), *frontier_lines.legend_entries(planned, budgets)]
    entries += [*cell_marks.legend_entries(planned), *_fewer_seeds_entry(grid)]
    layout = _layout(grid, footer(lines, grid, experiment), entries)
    for (row, column), axes in layout.panels.items():
        panel, (xs, ys) = grid.panel(column, row), _axes_of(grid, column)
        _dress_panel(axes, grid, column, layout)
        if panel.empty:
            continue
        _draw_colors(axes, panel, xs, ys)
        sides = cell_marks.median_sides(planned, column, row)
        for cell in records(panel):
            side = sides.get((cell.y, cell.x))
            _draw_cell(axes, cell, xs.index(cell.x), ys.index(cell.y), side)
        frontier_lines.draw(axes, planned, column, row, budgets)
    _draw_colorbar(layout)
    return layout.figure


def _layout(grid: Grid, text: str, entries: list[Any]) -> Layout:
    """Return panels that stand closer together where that saves a band of them."""
    roomy = _spaced(grid, text, entries, ROOMY)
    if len(roomy.bands) == 1:
        return roomy
    tight = _spaced(grid, text, entries, TIGHT)
    return tight if len(tight.bands) < len(roomy.bands) else roomy


def _spaced(grid: Grid, text: str, entries: list[Any], between: float) -> Layout:
    """Return panels whose cells have one size, wide enough for what is printed in them."""
    sides = [_axes_of(grid, column) for column in grid.columns]
    names = [text_width(_x_label(grid, x), TICK_SIZE) for side in sides for x in side[0]]
    upright = max(names) > MAX_CELL
    values = [
        text_width(_value(done), style.SMALLEST) + cell_marks.room(is_unsure(done))
        for done in records(grid.cells[grid.cells["state"] == "done"])
    ]
    cell = max([MIN_CELL, *([] if upright else [name + 0.04 for name in names]), *values])
    alone = [column for column in grid.columns if _has_one_size(grid, column)]
    labels = [_y_label(grid, c, y) for c in grid.columns for y in _axes_of(grid, c)[1]]
    ticks = TICK_PAD + max(text_width(t, TICK_SIZE) for label in labels for t in label.split("\n"))
    height = SPREAD_HEIGHT if (grid.cells["seeds"] > 1).any() else CELL_HEIGHT
    height = max(height, 0.02 + 0.1 * max(label.count("\n") + 1 for label in labels))
    return Layout(
        grid.model_rows,
        grid.columns,
        entries,
        text,
        widths=[max(cell * len(xs), 0.6) for xs, _ in sides],
        heights=max(height * len(ys) for _, ys in sides),
        stretch=MAX_CELL / cell,
        gap=(max(ticks + between, 0.13), 0.17 if max(len(ys) for _, ys in sides) > 1 else LOW_GAP),
        ticks=ticks,
        below=max(names) + 0.06 if upright else TICKS,
        right=0.39,
        x_label=style.axis_label(grid.x_key),
        share_x="none",
        share_y=False,
        titles={column: _size_title(grid, column) for column in alone},
        blank=[(r, c) for r in grid.model_rows for c in grid.columns if grid.panel(c, r).empty],
    )


def _axes_of(grid: Grid, column: str) -> tuple[list[Any], list[Any]]:
    """Return what stands across and upward in a column of panels."""
    cells = grid.cells[grid.cells["column"] == column]
    return sorted(cells["x"].unique().tolist()), sorted(cells["y"].unique().tolist())


def _trained_on(grid: Grid, folder: Path | None) -> list[str]:
    """Say what size the models were trained on where they are measured at others too."""
    done = grid.rows[grid.rows["status"] == "done"].to_dict("records")
    if folder is None or "size" not in (grid.x_key, grid.y_key):
        return []
    sizes = {trained_size(run, folder) for run in done}
    if len(sizes) != 1 or all(run["size"] in sizes for run in done):
        return []
    return [f"Trained on n = {sizes.pop()}, measured at each n."]


def _has_gaps(grid: Grid) -> bool:
    """Tell whether a panel lacks cells that its column's axes have."""
    for column in grid.columns:
        xs, ys = _axes_of(grid, column)
        panels = [grid.panel(column, row) for row in grid.model_rows]
        if any(len(panel) < len(xs) * len(ys) for panel in panels):
            return True
    return False


def _has_one_size(grid: Grid, column: str) -> bool:
    """Tell whether a column has one problem size, which its title then says once for all rows."""
    return grid.y_key == "size" and len(_axes_of(grid, column)[1]) == 1


def _y_label(grid: Grid, column: str, value: Any) -> str:
    if grid.y_key != "size":
        return "\n".join(wrap(style.tick_label(grid.y_key, value) or "–", 0.9, TICK_SIZE))
    if _has_one_size(grid, column):
        return ""
    return "\n".join(f"{name}={number}" for name, number in _sizes(grid, column, value))


def _size_title(grid: Grid, column: str) -> str:
    (size,) = _axes_of(grid, column)[1]
    said = ", ".join(f"{name} = {number}" for name, number in _sizes(grid, column, size))
    return f"{column}\n{said}"


def _sizes(grid: Grid, column: str, size: Any) -> list[tuple[str, str]]:
    """Return n and, where it is known, L."""
    cells = grid.cells[(grid.cells["column"] == column) & (grid.cells["size"] == size)]
    length = cells["max_len"].max()
    return [("n", str(size))] + ([] if np.isnan(length) else [("L", f"{length:.0f}")])


def _x_label(grid: Grid, value: Any) -> str:
    if isinstance(value, str):
        return style.tick_label(grid.x_key, value) or "–"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _value(cell: Any) -> str:
    return style.percent(cell.accuracy) + ("*" if cell.seeds < cell.seeds_planned else "")


def _dress_panel(axes: Axes, grid: Grid, column: str, layout: Layout) -> None:
    xs, ys = _axes_of(grid, column)
    rows = max(len(_axes_of(grid, other)[1]) for other in grid.columns)
    axes.set_xlim(-0.5, len(xs) - 0.5)
    axes.set_ylim(-0.5, rows - 0.5)
    axes.set_xticks(range(len(xs)), [_x_label(grid, x) for x in xs])
    axes.set_yticks(range(len(ys)), [_y_label(grid, column, y) for y in ys])
    axes.tick_params(length=0, pad=2)
    axes.tick_params(axis="y", pad=72 * TICK_PAD)
    axes.tick_params(axis="x", rotation=90 if layout.below > TICKS else 0)
    axes.spines[:].set_visible(False)
    axes.grid(False)


def _draw_colors(axes: Axes, panel: pd.DataFrame, xs: list[Any], ys: list[Any]) -> None:
    values = np.full((len(ys), len(xs)), np.nan)
    for cell in records(panel):
        values[ys.index(cell.y), xs.index(cell.x)] = 100 * cell.accuracy
    axes.pcolormesh(
        np.arange(len(xs) + 1) - 0.5,
        np.arange(len(ys) + 1) - 0.5,
        np.ma.masked_invalid(values),
        cmap=style.HEAT,
        norm=Normalize(0, 100),
        edgecolors="white",
        linewidth=0.4,
    )


def _draw_cell(axes: Axes, cell: Any, x: int, y: int, side: str | None) -> None:
    place = f"{cell.y}/{cell.x}"
    if cell.state != "done":
        _draw_state(axes, cell.state, x, y, place)
        return
    ink = style.ink_on(matplotlib.colormaps[style.HEAT](cell.accuracy))
    width, height = cell_marks.cell_size(axes)
    value, room = _value(cell), width - cell_marks.room(True)
    size = min(VALUE_SIZE, max(style.SMALLEST, room / text_width(value, 1)))
    _text(axes, x, y, value, size, gid=f"value/{place}", color=ink)
    if is_unsure(cell):
        number = text_width(value, size)
        cell_marks.draw_frame(axes, x, y, number, edgecolor=ink, gid=f"frame/{place}")
    if side:
        cell_marks.draw_corner(axes, x, y, side, facecolor=ink, gid=f"median/{side}/{place}")
    if cell.seeds > 1:
        low, high = style.percent_range(cell.accuracy_min, cell.accuracy_max)
        for name, text, step in (("maximum", high, SPREAD), ("minimum", low, -SPREAD)):
            gid = f"{name}/{place}"
            _text(axes, x, y + step / height, text, style.SMALLEST, gid=gid, color=ink)


def _draw_state(axes: Axes, state: str, x: int, y: int, place: str) -> None:
    look = STATE_LOOKS[state]
    box = Rectangle((x - 0.5, y - 0.5), 1, 1, hatch=look["hatch"], facecolor=look["facecolor"])
    box.set(**HATCH, gid=f"{state}/{place}")
    axes.add_patch(box)
    white = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
    _text(axes, x, y, look["text"], VALUE_SIZE, gid=f"value/{place}", bbox=white)


def _text(axes: Axes, x: float, y: float, text: str, size: float, **look: Any) -> None:
    axes.text(x, y, text, ha="center", va="center_baseline", fontsize=size, **look)


def _draw_colorbar(layout: Layout) -> None:
    right, low, high = layout.span
    axes = layout.add_axes(right + 0.07, low, 0.08, high - low)
    axes.set_gid("colorbar")
    axes.grid(False)
    ticks = [0, 25, 50, 75, 90, 100] if high - low > 1.2 else [0, 50, 100]
    mappable = ScalarMappable(Normalize(0, 100), style.HEAT)
    bar = layout.figure.colorbar(mappable, cax=axes, ticks=ticks)
    bar.outline.set_linewidth(0.5)
    axes.tick_params(length=1.5, pad=2)
    axes.set_title("%", pad=3, fontsize=TICK_SIZE)


def _state_entries(grid: Grid) -> list[Any]:
    entries: list[Any] = []
    for state, look in STATE_LOOKS.items():
        if (grid.cells["state"] == state).any():
            box = Patch(facecolor=look["facecolor"], hatch=look["hatch"], label=STATE_WORDS[state])
            box.set(**HATCH)
            entries.append(box)
    return entries


def _fewer_seeds_entry(grid: Grid) -> list[Any]:
    done = grid.cells[grid.cells["state"] == "done"]
    fewer = (done["seeds"] < done["seeds_planned"]).any()
    return [Line2D([], [], linestyle="", label="* fewer seeds than planned")] if fewer else []
