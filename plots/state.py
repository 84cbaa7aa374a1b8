"""Accuracy over D and over bytes of state, a line for each number of heads.

Where the size of the state decides what is learned, lines that lie apart over D coincide over
bytes; `plots.state_shift` says by how much they shift, with a verdict.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import Normal, Stroke
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from matplotlib.transforms import ScaledTranslation

from plots import style, tabular
from plots.budgets import of_grid, sentences
from plots.cells import Grid, gather, records
from plots.layout import Layout
from plots.looks import dim_looks, nested
from plots.paper import THRESHOLD
from plots.state_shift import NAME as SHIFT
from plots.state_shift import Shifts, printed_table, rows, shifts_of
from plots.state_shift import sentences as verdicts
from plots.text import csv_text
from plots.untried import without_untried_values
from plots.words import footer, missing_text, seeds_text

NAME = "state"
ASIDE = 2.8  # points between the bars of one place
MARKERS = ("o", "s", "^", "D", "v", "p")
AXES = {"embedding dimension D": "dim", "bytes of generation state": "state_bytes"}
COLUMNS = ["column", "row", "task", "size", "model", "heads", "dim", "state", "state_bytes"]
COLUMNS += ["accuracy", "accuracy_min", "accuracy_max", "seeds"]


def draw(table: pd.DataFrame, plan: pd.DataFrame, experiment: Any, out: Path) -> list[Path]:
    """Write ``state`` as PDF and PNG, its points, and the shifts as ``state_shift.*``."""
    grid = _grid(table, plan)
    found = shifts_of(grid)
    limits = sentences(of_grid(gather(table, plan), out.parent))
    paths = style.styled(style.save)(figure(grid, found, limits, experiment), out, NAME)
    points = grid.cells[COLUMNS].drop(columns=["task", "model"])
    points = points.rename(columns={"column": "task", "row": "model"})
    paths.append(style.write_text(csv_text(points), out / f"{NAME}.csv"))
    shifts = rows(found)
    if shifts.empty:
        return paths
    texts = printed_table(shifts, found, experiment, limits).texts(shifts.round(4))
    return [*paths, *tabular.write(texts, out, SHIFT)]


def _grid(table: pd.DataFrame, plan: pd.DataFrame) -> Grid:
    facets = {"columns": ["task"], "rows": ["model"], "x": "dim", "y": "heads"}
    grid = gather(table, plan, facets)
    panels = grid.cells["column"] + ", " + grid.cells["row"]
    return without_untried_values(grid, label=panels, heads=grid.cells["heads"])


@style.styled
def figure(grid: Grid, found: list[Shifts], limits: list[str], experiment: Any) -> Figure:
    """Return the figure: a row of panels per task, size and model, gid ``panel/<row>/<axis>``."""
    panels = {
        f"{column}, {row}": grid.panel(column, row)
        for column in grid.columns
        for row in grid.model_rows
        if len(grid.panel(column, row))
    }
    heads = sorted(int(number) for number in grid.cells["heads"].unique())
    looks = _looks(heads)
    entries = [
        Line2D([], [], label=style.setting_label("heads", number), **looks[number])
        for number in heads
    ]
    entries.append(Line2D([], [], label="90 %", **style.THRESHOLD_LINE))
    layout = Layout(
        list(panels),
        list(AXES),
        entries,
        _footer(grid, found, limits, experiment),
        widths=2.2,
        heights=1.25,
        gap=(0.22, 0.16),
        ticks=0.3,
        y_label="answer accuracy in percent",
        share_x="none",
    )
    for label, panel in panels.items():
        done = panel[panel["state"] == "done"]
        for title, name in AXES.items():
            axes = layout.axes(label, title)
            _draw_panel(axes, done, name, looks)
            _scale(axes, grid.cells, name)
    return layout.figure


def _looks(heads: list[int]) -> dict[int, dict[str, Any]]:
    """Return dark to light, thin on wide, so that lines that coincide are all seen."""
    sizes = nested(len(heads), 6.5, 3.0)
    lines = dim_looks(heads)
    return {
        number: lines[number]
        | {"marker": MARKERS[i % len(MARKERS)], "markersize": sizes[i], "markerfacecolor": "none"}
        for i, number in enumerate(heads)
    }


def _draw_panel(
    axes: Axes, done: pd.DataFrame, name: str, looks: dict[int, dict[str, Any]]
) -> None:
    axes.set_xscale("log", base=2)
    style.percent_axis(axes)
    axes.axhline(100 * THRESHOLD, **style.THRESHOLD_LINE)
    done = done.dropna(subset=[name])
    if done.empty:
        style.say_in(axes, "no results")
    for _, there in done[done["seeds"] > 1].groupby(name):
        _draw_ranges(axes, there.sort_values("heads"), name, looks)
    for number, look in looks.items():
        part = done[done["heads"] == number].sort_values(name)
        if len(part):
            axes.plot(part[name], 100 * part["accuracy"], gid=f"heads/{number}", clip_on=False,
                      **look)  # fmt: skip


def _draw_ranges(
    axes: Axes, there: pd.DataFrame, name: str, looks: dict[int, dict[str, Any]]
) -> None:
    """Draw a bar from the least to the most accurate seed for each number of heads at one place.

    Bars stand side by side, each with its own number of the axis; points do not, since their
    distance along the axis is what the figure is about.
    """
    asides = ASIDE * (np.arange(len(there)) - (len(there) - 1) / 2)
    for cell, points in zip(records(there), asides, strict=True):
        look, aside = (
            looks[cell.heads],
            ScaledTranslation(points / 72, 0, axes.figure.dpi_scale_trans),
        )
        width = 0.75 * look["linewidth"]
        # The lightest colours are faint on white without an edge.
        edge = [Stroke(linewidth=width + 0.5, foreground=style.GREY), Normal()]
        axes.vlines(getattr(cell, name), 100 * cell.accuracy_min, 100 * cell.accuracy_max,
                    color=look["color"], linewidth=width, path_effects=edge,
                    transform=axes.transData + aside, gid=f"range/{cell.heads}")  # fmt: skip


def _scale(axes: Axes, cells: pd.DataFrame, name: str) -> None:
    """Give every panel of a column the same axis, so that rows can be compared."""
    known = cells[name].dropna()
    if known.empty:
        return
    low, high = known.min(), known.max()
    axes.set_xlim(low / 1.25, high * 1.25)
    axes.xaxis.set_minor_locator(NullLocator())
    if name == "dim":
        axes.xaxis.set_major_locator(FixedLocator(sorted(known.unique())))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
        return
    powers = np.arange(np.ceil(np.log2(low)), np.floor(np.log2(high)) + 1)
    axes.xaxis.set_major_locator(
        FixedLocator((2.0 ** powers[:: max(1, len(powers) // 6)]).tolist())
    )
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: bytes_text(value)))


def bytes_text(value: float) -> str:
    """Return e.g. ``512 B`` or ``2 KiB``."""
    place = min(2, int(np.log2(value)) // 10)
    return f"{value / 1024**place:g} {('B', 'KiB', 'MiB')[place]}"


def _footer(grid: Grid, found: list[Shifts], limits: list[str], experiment: Any) -> str:
    lines = [
        f"Answer accuracy; {seeds_text(grid.cells)}; bars from minimum to maximum, those of one "
        "place side by side. State: what generation keeps of L tokens, in float32. Where its size "
        f"decides, lines that lie apart over D coincide over bytes. {missing_text(grid.cells)}",
        *verdicts(found),
        *limits,
    ]
    return footer(lines, grid, experiment)
