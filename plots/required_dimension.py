"""How the embedding dimension that 90 % needs grows with the sequence length, beside Table 1.

Per task and model: the least measured D with an answer accuracy of at least 90 % against L, with
the interval in which the requirement lies, the fitted growth with its exponent, and lines of the
slopes that theory predicts.  A least D that the budget limits is hollow.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from plots import growth_text, limits, style, theory_lines
from plots.budgets import of_grid
from plots.cells import Grid, gather, records
from plots.fit import Growth
from plots.frontier import UNMEASURED
from plots.growth_rows import fits, growths, points
from plots.labels import panels_of
from plots.layout import Layout
from plots.looks import row_look
from plots.text import csv_text
from plots.ticks import dim_axis
from plots.untried import without_wider

NAME = "required_dimension"
LABEL_ROOM = 0.45  # inches at the right of each panel, for theory's labels
HEIGHT = 1.9  # inches of a panel


def draw(table: pd.DataFrame, plan: pd.DataFrame, experiment: Any, out: Path) -> list[Path]:
    """Write the figure, its points and its fits: ``required_dimension[_fit].csv``."""
    picture = figure(table, plan, experiment, out.parent)
    paths = style.styled(style.save)(picture, out, NAME)
    grid = gather(table, plan)
    budgets = of_grid(grid, out.parent)
    for name, frame in ((NAME, points(grid, budgets)), (f"{NAME}_fit", fits(grid))):
        paths.append(style.write_text(csv_text(frame), out / f"{name}.csv"))
    return paths


@style.styled
def figure(
    table: pd.DataFrame, plan: pd.DataFrame, experiment: Any, folder: Path | None = None
) -> Figure:
    """Return the figure: a panel per column of the facets, a line per model.

    ``folder`` holds the curves.
    """
    grid = gather(table, plan, panels_of(experiment))
    budgets = of_grid(grid, folder)
    frame, fitted = points(grid, budgets), growths(grid)
    layout = Layout(
        [""],
        grid.columns,
        _entries(grid, frame),
        growth_text.text(grid, fitted, budgets, experiment),
        widths=1.7,
        heights=HEIGHT,
        x_label="longest sequence L",
        y_label="required embedding dimension D",
    )
    _scale(layout, frame, grid)
    for column in grid.columns:
        axes = layout.axes("", column)
        labels: list[theory_lines.Label] = []
        for model in grid.model_rows:
            part = frame[(frame["task"] == column) & (frame["model"] == model)]
            _draw_model(axes, part, grid, model, fitted.get((column, model)))
            labels += theory_lines.draw(axes, part, model, row_look(model, grid)["color"])
        right = frame["max_len"].max() * _shift(grid, grid.model_rows[-1])
        theory_lines.write(axes, labels, right, HEIGHT)
    return layout.figure


def _shift(grid: Grid, row: str) -> float:
    """Return by how much a model's points stand right of L: equal ones would hide each other."""
    return float(1.05 ** (grid.model_rows.index(row) - (len(grid.model_rows) - 1) / 2))


def _entries(grid: Grid, frame: pd.DataFrame) -> list[Line2D]:
    """Return the legend's entries: those of what is drawn."""
    black: dict[str, Any] = {"color": "black", "linestyle": ""}
    tried = set(frame.loc[frame["state"] != "not run", "model"])
    rows = [row for row in grid.model_rows if row in tried]
    entries = [Line2D([], [], label=row, **row_look(row, grid)) for row in rows]
    bar = "bar: down to the largest D that fails"
    entries.append(Line2D([], [], marker="|", markersize=7, label=bar, **black))
    larger = bool(frame["state"].isin(["not reached", "incomplete"]).any())
    unbounded = bool(frame.loc[frame["state"] == "reached", "below"].isna().any())
    entries += limits.entries(set(frame["limited_by_budget"]), larger, unbounded)
    if any(theory_lines.predicted(frame, row) for row in rows):
        label = "dotted line: growth that theory predicts"
        entries.append(Line2D([], [], label=label, color="#555555", **theory_lines.DOTTED))
    return entries


def _draw_model(
    axes: Axes, part: pd.DataFrame, grid: Grid, row: str, fitted: Growth | None
) -> None:
    look, shift = row_look(row, grid), _shift(grid, row)
    part = part.dropna(subset=["max_len"])
    reached = part[part["state"] == "reached"]
    axes.plot(shift * reached["max_len"], reached["dim"], gid=f"reached/{row}",
              **{**look, "linestyle": ""})  # fmt: skip
    if not fitted:
        _join(axes, reached, grid, row, look, shift)
    else:
        run = part.loc[~part["state"].isin(UNMEASURED), "max_len"]
        lengths = np.array([run.min(), run.max()])
        line = {"color": look["color"], "linestyle": look["linestyle"], "zorder": 1.2}
        axes.plot(lengths, fitted.at(lengths), gid=f"fit/{row}", linewidth=1.0, **line)
    for item in records(reached):
        _draw_interval(axes, item, row, shift, look)
    for item in records(part[part["state"].isin(["not reached", "incomplete"])]):
        if item.below > 0:
            gid = f"not reached/{row}/{item.size}"
            limits.arrow(axes, shift * item.max_len, item.below, look, gid)


def _join(
    axes: Axes, reached: pd.DataFrame, grid: Grid, row: str, look: dict[str, Any], shift: float
) -> None:
    """Draw a line from mark to mark; dotted where the grid has no smaller D than one of the two.

    An upper bound alone would bend the line by how far the search has come.
    """
    known = reached[reached["below"].notna() | reached["dim"].eq(grid.cells["dim"].min())]
    ends = zip(shift * known["max_len"], known["dim"], known["below"].isna(), strict=True)
    for (x, dim, open_here), (next_x, next_dim, open_there) in itertools.pairwise(ends):
        dotted = {"linestyle": (0, (1, 1))} if open_here or open_there else {}
        line = {**look, "marker": "", "gid": f"line/{row}", **dotted}
        axes.plot([x, next_x], [dim, next_dim], **line)


def _draw_interval(axes: Axes, item: Any, row: str, shift: float, look: dict[str, Any]) -> None:
    x, below = shift * item.max_len, item.below if item.below > 0 else None
    limits.bar(axes, x, below, item.dim, look, f"interval/{row}/{item.size}")
    limits.mark(axes, x, item.dim, item.limited_by_budget, look, f"{row}/{item.size}")


def _scale(layout: Layout, frame: pd.DataFrame, grid: Grid) -> None:
    dims = [int(dim) for dim in np.unique(without_wider(grid).cells["dim"])]
    for axes in layout.panels.values():
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
        axes.xaxis.set_minor_locator(NullLocator())
        dim_axis(axes, dims, HEIGHT)
    lengths = frame["max_len"].dropna()
    if len(lengths):
        _tick_lengths(layout, np.unique(lengths))
        shift = _shift(grid, grid.model_rows[-1])
        low, high = np.log2(lengths.min() / 1.2), np.log2(lengths.max() * 1.03 * shift)
        theory = any(theory_lines.predicted(frame, row) for row in grid.model_rows)
        share = LABEL_ROOM / min(layout.widths) if theory else 0.0
        axes.set_xlim(2**low, 2 ** (high + (high - low) * share / (1 - share)))


def _tick_lengths(layout: Layout, lengths: np.ndarray) -> None:
    """Put the ticks at the lengths themselves where powers of two would leave one or none."""
    octaves = np.log2(lengths)
    if octaves[-1] - octaves[0] < 2 and (np.diff(octaves) > 0.2).all():
        for axes in layout.panels.values():
            axes.xaxis.set_major_locator(FixedLocator(lengths.tolist()))
