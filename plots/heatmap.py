"""Accuracy over D and problem size, columns tasks, rows models.

Accuracy: the share of correct final answers by greedy decoding (`tagged`: last labels; `online`:
all labels). Each square is split into sorted stripes, one per seed; its number is their median.
Black bar, if x is D: left of D90, the smallest D whose median reaches 90 % (a bound if no smaller D
ran). Blank: no result.
"""

import itertools
import re
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PatchCollection
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from common import UserError
from experiments.d90 import bracket, passes
from plots import data, style, theory

CLASSES = ListedColormap(["#e6ebf4", "#cbd7e8", "#abbeda", "#88a2c9", "#e0701a"])
EDGES = BoundaryNorm([0, 25, 50, 75, 90, 100], 5)
PAPER: dict[str, Any] = {"color": "#d00000", "linewidth": 1.4}
D90: dict[str, Any] = {"color": "black", "linewidth": 2.2}
WIDEST, HEIGHT = 0.5, 0.21  # inches of a cell
NARROWEST = 0.17  # inches of a cell with a number
LEAST = 0.02  # inches of a cell where labels leave no room
LOWEST = 0.75  # inches of all rows together, so that the colour bar's numbers fit
MARGIN = 0.94  # coloured share of a cell's width and height


def points(table: pd.DataFrame, facets: data.Facets = None) -> pd.DataFrame:
    """The rows of `data.panels` with the `median` of the seeds and the paper's D90."""
    rows = data.panels(table, facets)
    place = ["column", "row", "x", "y"]
    for key in ("task", "model"):
        if rows.groupby(place, dropna=False)[key].nunique().max() > 1:
            raise UserError(f"facets: several {key}s share a square; add {key} to columns or rows")
    median = rows.groupby(place, dropna=False)["answer_accuracy"].transform("median")
    paper = rows.apply(theory.paper_value, axis=1, known=theory.PAPER_D90)
    return rows.assign(median=median, paper_dim=paper)


@style.styled
def draw(table: pd.DataFrame, facets: data.Facets = None, *, width: float, **_: Any) -> Figure:
    """`facets` names the settings of columns, rows, x and y. With one column of panels, rows stand
    side by side."""
    keys = data.facets_of(facets, table)
    cells = points(table, facets)
    over_dim = keys["x"] == ["dim"]
    beside_each_other = cells["column"].nunique() == 1 and 2 <= cells["row"].nunique() <= 5
    if beside_each_other:
        cells = cells.rename(columns={"column": "row", "row": "column"})
    columns, rows = cells["column"].unique(), cells["row"].unique()
    alike = {name: cells if beside_each_other else cells[cells["column"] == name]
             for name in columns}  # fmt: skip
    xs = {name: _distinct(part["x"]) for name, part in alike.items()}
    words = cells["y"].dtype.kind not in "if"
    down = -1 if words else 1  # words from the top, numbers upwards
    order = _distinct(cells["y"])[::down]
    ys = {name: [y for y in order if y in set(part["y"])] for name, part in alike.items()}
    once = beside_each_other or (words and len(set(map(tuple, ys.values()))) == 1)
    times = 1 if once else len(columns)
    width, cell = _widths(width, xs, ys, times)
    lines = max(style.wrapped(row, 1.2).count("\n") + 1 for row in rows)
    cells_high = max(HEIGHT * max(map(len, ys.values())) + 0.1, 0.14 * lines) * len(rows)
    counts = [len(xs[name]) for name in columns]
    least = cell * min(counts)  # inches: the narrowest panel
    titles = [style.wrapped(column, least) for column in columns]
    titles_high = 0.16 * max(title.count("\n") for title in titles)
    height = max(cells_high, LOWEST + titles_high) + 0.85
    figure = style.new_figure(width, height, dense=True)
    grid = figure.subplots(len(rows), len(columns), squeeze=False, width_ratios=counts)
    for (i, row), (j, column) in itertools.product(enumerate(rows), enumerate(columns)):
        part = cells[(cells["row"] == row) & (cells["column"] == column)]
        _draw_panel(grid[i, j], part, xs[column], ys[column], over_dim, cell)
        with_labels = j == 0 or not once
        labels = with_labels and not part.empty
        grid[i, j].tick_params(labelbottom=i == len(rows) - 1, labelleft=labels)
        if i == 0:
            unit = _unit(alike[column], keys["y"]) if with_labels else ""
            _write_title(grid[i, j], titles[j], unit, least < 1.2)
    long = 0.08 * max(map(len, rows)) > HEIGHT * max(map(len, ys.values()))
    for axes, row in zip(grid[:, 0], rows, strict=True):
        turned = {"rotation": 0, "ha": "right", "va": "center"} if long else {}
        axes.set_ylabel(style.wrapped(row, 1.2), fontsize="large", labelpad=6, **turned)
    label = data.axis_label(keys["x"])
    if keys["x"] == ["size"] and cells["task"].nunique() == 1:
        label = f"{label} ({_unit(cells, ['size'])})"
    _explain(figure, grid, cells, label, over_dim)
    return figure


def _widths(
    width: float, xs: dict[str, list[Any]], ys: dict[str, list[Any]], times: int
) -> tuple[float, float]:
    """The width of the figure, at most `width`, and of a cell, in inches. `times`: how many panels
    have y labels."""
    letters = max(len(_tick(y)) for values in ys.values() for y in values)
    beside = 0.8 + 0.1 * len(xs) + (0.1 + 0.065 * letters) * times
    cells = sum(map(len, xs.values()))
    longest = max(len(_tick(x)) for values in xs.values() for x in values)
    titles = max(len(name) / len(values) for name, values in xs.items())
    widest = max(WIDEST, 0.06 * longest, min(0.08 * titles, 0.7))
    width = min(width, max(beside + widest * cells, style.COLUMN_WIDTH))
    return width, max((width - beside) / cells, LEAST)


def _write_title(axes: Axes, title: str, unit: str, narrow: bool) -> None:
    """Write the title, and the unit of y above its numbers; on two lines if `narrow`."""
    axes.set_title(title, pad=13 if narrow else 4)
    axes.annotate(
        unit, (0, 1), xytext=(-2, 3), textcoords="offset points", color=style.GREY,
        xycoords="axes fraction", ha="right", va="bottom", fontsize="small",
    )  # fmt: skip


def _distinct(values: pd.Series) -> list[Any]:
    """Distinct values, ascending if they are numbers or all begin with one."""
    distinct = list(dict.fromkeys(values.tolist()))
    if values.dtype.kind in "if":
        return sorted(distinct)
    numbered = all(re.match(r"\d+ ", value) for value in distinct)
    return sorted(distinct, key=lambda value: int(value.split()[0])) if numbered else distinct


def _unit(cells: pd.DataFrame, y: list[str]) -> str:
    if y == ["size"]:
        return style.task_look(cells["task"].iloc[0]).unit
    return "" if len(y) > 1 or cells["y"].dtype.kind not in "if" else data.axis_label(y)


def _draw_panel(
    axes: Axes, cells: pd.DataFrame, xs: list[Any], ys: list[Any], over_dim: bool, width: float
) -> None:
    stripes, values = [], []
    for (x, y), part in cells.groupby(["x", "y"], sort=False, dropna=False):
        left, bottom = xs.index(x) - MARGIN / 2, ys.index(y) - MARGIN / 2
        step = MARGIN / len(part)
        for place, value in enumerate(sorted(part["answer_accuracy"])):
            stripes.append(Rectangle((left + place * step, bottom), step, MARGIN))
            values.append(100 * value)
        if width >= NARROWEST:
            median = part["median"].iloc[0]
            number = round(100 * median) if passes(median) else min(89, round(100 * median))
            axes.text(
                xs.index(x), ys.index(y), str(number), ha="center", va="center_baseline",
                fontsize="small" if number == 100 and width < 0.22 else "medium",
            )  # fmt: skip
    drawn = PatchCollection(stripes, cmap=CLASSES, norm=EDGES, linewidth=0)
    drawn.set_array(np.minimum(values, 99.999))
    axes.add_collection(drawn)
    if over_dim:
        _draw_frontier(axes, cells, xs, ys)
    axes.set(xlim=(-0.55, len(xs) - 0.45), ylim=(-0.55, len(ys) - 0.45))
    numbers = not isinstance(xs[0], str)
    ticks = [_tick(x) if numbers else style.wrapped(x, width) for x in xs]
    longest = max(map(len, ticks))
    every = int(np.ceil((0.055 * longest + 0.02) / width)) if numbers else 1
    turned = 90 if not numbers and 0.055 * longest > width else 0
    axes.set_xticks(range(0, len(xs), every), ticks[::every], rotation=turned)
    axes.set_yticks(range(len(ys)), [_tick(y) for y in ys])
    axes.tick_params(length=0, pad=1.5)
    axes.spines[:].set_visible(False)


def _tick(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _draw_frontier(axes: Axes, cells: pd.DataFrame, xs: list[Any], ys: list[Any]) -> None:
    for y, part in cells.groupby("y", sort=False):
        d90 = bracket(part.groupby("x")["median"].first().to_dict()).dim
        middle, paper = ys.index(y), part["paper_dim"].iloc[0]
        wide = {"linewidth": 2 * D90["linewidth"]} if paper == d90 else {}
        for dim, look in [(paper, PAPER | wide), (d90, D90)]:
            if dim <= max(xs):
                left = sum(x < dim for x in xs) - 0.5  # of the first D that is enough
                axes.plot([left] * 2, [middle - 0.5, middle + 0.5], solid_capstyle="butt", **look)
        if paper > max(xs):
            axes.text(
                len(xs) - 0.45, middle, f"→{paper:g}", color=PAPER["color"], va="center_baseline"
            )


def _explain(
    figure: Figure, grid: np.ndarray, cells: pd.DataFrame, label: str, over_dim: bool
) -> None:
    bar = figure.colorbar(
        ScalarMappable(EDGES, CLASSES), ax=grid, fraction=0.05, pad=0.01,
        aspect=9 * figure.get_figheight(), ticks=[0, 25, 50, 75, 90, 100],
    )  # fmt: skip
    bar.set_label("correct answers (%)")
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0)
    looks = {}
    if over_dim and cells["median"].map(passes).any():
        looks["D90"] = D90
    if over_dim and cells["paper_dim"].notna().any():
        looks["D90 implied by the paper's Table 2"] = PAPER
    if cells.groupby(["column", "row", "x", "y"])["seed"].size().max() > 1:
        label = f"{label} (numbers: medians, stripes: seeds)"
    style.legend_below(figure, looks, label)
