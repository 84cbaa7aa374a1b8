"""How the embedding dimension that 90 % needs grows with the sequence length, beside Table 1.

Per task and model: the least measured D with an answer accuracy of at least 90 % against L, with
the interval in which the requirement lies, the fitted growth with its exponent, and lines of the
slopes that theory predicts.  A least D that the budget limits is hollow.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from plots import paper, style
from plots.budgets import YES, Budgets, of_grid, sentences
from plots.cells import Grid, gather, records
from plots.fit import Growth
from plots.frontier import UNMEASURED, Requirement, requirements_of
from plots.growth_rows import fits, growths, points
from plots.labels import panels_of
from plots.layout import Layout
from plots.looks import hollow, row_look
from plots.resampling import METHOD
from plots.text import csv_text
from plots.ticks import dim_axis
from plots.words import footer, seeds_text

NAME = "required_dimension"
_POWERS = {0.0: "constant", 0.25: "∜L", 0.5: "√L"}
LABEL_SIZE, LABEL_ROOM = 5.5, 0.45  # points; inches at the right of each panel
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
        _footer(grid, fitted, budgets, experiment),
        widths=1.7,
        heights=HEIGHT,
        x_label="longest sequence L",
        y_label="required embedding dimension D",
    )
    _scale(layout, frame, grid)
    for column in grid.columns:
        axes = layout.axes("", column)
        labels: list[tuple[float, float, str, Any]] = []
        for model in grid.model_rows:
            part = frame[(frame["task"] == column) & (frame["model"] == model)]
            _draw_model(axes, part, grid, model, fitted.get((column, model)))
            labels += _draw_theory(axes, part, model, row_look(model, grid))
        _label_theory(axes, labels, _shift(grid, grid.model_rows[-1]))
    return layout.figure


def _shift(grid: Grid, row: str) -> float:
    """Return by how much a model's points stand right of L: equal ones would hide each other."""
    return float(1.025 ** (grid.model_rows.index(row) - (len(grid.model_rows) - 1) / 2))


def _entries(grid: Grid, frame: pd.DataFrame) -> list[Line2D]:
    """Return the legend's entries: those of what is drawn."""
    black: dict[str, Any] = {"color": "black", "linestyle": ""}
    tried = set(frame.loc[frame["state"] != "not run", "model"])
    rows = [row for row in grid.model_rows if row in tried]
    entries = [Line2D([], [], label=row, **row_look(row, grid)) for row in rows]
    bar = "bar: down to the largest D that fails"
    entries.append(Line2D([], [], marker="|", markersize=7, label=bar, **black))
    if frame["state"].isin(["not reached", "incomplete"]).any():
        entries.append(Line2D([], [], marker=6, label="not reached: larger", **black))
    if (frame["limited_by_budget"] == YES).any():
        ring: dict[str, Any] = {"marker": "o", "markerfacecolor": "white"}
        entries.append(Line2D([], [], label="limited by the budget", **ring, **black))
    reached = frame[frame["state"] == "reached"]
    if reached["below"].isna().any():
        short: dict[str, Any] = {"linestyle": (0, (1, 1)), "color": "#555555", "linewidth": 0.9}
        entries.append(Line2D([], [], label="dotted upright: no smaller D measured", **short))
    if any(_theory(frame, row) for row in rows):
        dotted: dict[str, Any] = {"linestyle": (0, (1, 2)), "color": "#555555", "linewidth": 0.9}
        entries.append(Line2D([], [], label="dotted aslant: slope that theory predicts", **dotted))
    return entries


def _theory(frame: pd.DataFrame, row: str) -> bool:
    """Tell whether a slope of theory is drawn for a model in any panel."""
    own = frame[frame["model"] == row]
    parts = [part for _, part in own.groupby("task") if part["max_len"].nunique() > 1]
    reached = [part[part["state"] == "reached"] for part in parts]
    firsts = [part.iloc[0] for part in reached if len(part)]
    return any(paper.predictions(first["task_name"], first["name"]) for first in firsts)


def _draw_model(
    axes: Axes, part: pd.DataFrame, grid: Grid, row: str, fitted: Growth | None
) -> None:
    look, shift = row_look(row, grid), _shift(grid, row)
    part = part.dropna(subset=["max_len"])
    reached = part[part["state"] == "reached"]
    axes.plot(shift * reached["max_len"], reached["dim"], gid=f"reached/{row}",
              **{**look, "linestyle": ""})  # fmt: skip
    if not fitted:
        # An upper bound alone would bend the line by how far the search has come.
        known = reached[reached["below"].notna() | reached["dim"].eq(grid.cells["dim"].min())]
        line = {**look, "marker": "", "gid": f"line/{row}"}
        axes.plot(shift * known["max_len"], known["dim"], **line)
    if fitted:
        run = part.loc[~part["state"].isin(UNMEASURED), "max_len"]
        lengths = np.array([run.min(), run.max()])
        line = {"color": look["color"], "linestyle": look["linestyle"], "zorder": 1.2}
        axes.plot(lengths, fitted.at(lengths), gid=f"fit/{row}", linewidth=1.0, **line)
    for item in records(reached):
        _draw_interval(axes, item, row, shift, look)
    for item in records(part[part["state"].isin(["not reached", "incomplete"])]):
        if item.below > 0:
            ends = [item.below, item.below * 1.35]
            up: dict[str, Any] = {"marker": 6, "markevery": [1], "linewidth": 0.9}
            gid = f"not reached/{row}/{item.size}"
            axes.plot([shift * item.max_len] * 2, ends, color=look["color"], gid=gid, **up)


def _draw_interval(axes: Axes, item: Any, row: str, shift: float, look: dict[str, Any]) -> None:
    x, bounded = shift * item.max_len, item.below > 0
    ends = [item.below if bounded else item.dim / 1.35, item.dim]
    bar: dict[str, Any] = {"linestyle": "-" if bounded else (0, (1, 1)), "zorder": 1.5}
    gid = f"interval/{row}/{item.size}"
    axes.plot([x, x], ends, color=look["color"], linewidth=0.9, gid=gid, **bar)
    if item.limited_by_budget == YES:
        axes.plot([x], [item.dim], gid=f"limited/{row}/{item.size}", **hollow(look))


def _draw_theory(
    axes: Axes, part: pd.DataFrame, row: str, look: dict[str, Any]
) -> list[tuple[float, float, str, Any]]:
    """Draw theory's slopes and return a label for each: L and D at its end, text, colour."""
    known = part[part["state"] == "reached"].sort_values("max_len")
    if known.empty or part["max_len"].nunique() < 2:
        return []
    first, labels = known.iloc[0], []
    # Theory gives slopes, not constants: each line starts where the first size was measured.
    lengths = np.array([part["max_len"].min(), part["max_len"].max()])
    for prediction in paper.predictions(first["task_name"], first["name"]):
        dims = first["dim"] * (lengths / first["max_len"]) ** prediction.exponent
        dotted: dict[str, Any] = {"linestyle": (0, (1, 2)), "linewidth": 0.9, "zorder": 1}
        gid = f"theory/{row}/{prediction.exponent:g}"
        axes.plot(lengths, dims, color=look["color"], gid=gid, **dotted)
        bound = "≥ " if prediction.lower_bound else ""
        text = f"{bound}{_POWERS.get(prediction.exponent, f'{prediction.exponent:g}')}"
        labels.append((float(lengths[1]), float(dims[1]), text, look["color"]))
    return labels


def _label_theory(axes: Axes, labels: list[tuple[float, float, str, Any]], shift: float) -> None:
    """Write each label once, right of the last points and clear of the others."""
    low, high = np.log2(axes.get_ylim())
    gap = (LABEL_SIZE + 1.5) / 72 * (high - low) / HEIGHT
    place = -np.inf
    for length, dim, text, color in sorted(set(labels), key=lambda label: label[1:3]):
        place = max(float(np.log2(dim)), place + gap)
        axes.annotate(
            text, (length * shift, 2**place), xytext=(6, 0), textcoords="offset points",
            fontsize=LABEL_SIZE, color=color, ha="left", va="center", annotation_clip=False,
        )  # fmt: skip


def _scale(layout: Layout, frame: pd.DataFrame, grid: Grid) -> None:
    dims = [int(dim) for dim in np.unique(grid.cells["dim"])]
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
        share = LABEL_ROOM / min(layout.widths)
        axes.set_xlim(2**low, 2 ** (high + (high - low) * share / (1 - share)))


def _tick_lengths(layout: Layout, lengths: np.ndarray) -> None:
    """Put the ticks at the lengths themselves where powers of two would leave one or none."""
    octaves = np.log2(lengths)
    if octaves[-1] - octaves[0] < 2 and (np.diff(octaves) > 0.2).all():
        for axes in layout.panels.values():
            axes.xaxis.set_major_locator(FixedLocator(lengths.tolist()))


def _footer(
    grid: Grid, fitted: dict[tuple[str, str], Growth | None], budgets: Budgets, experiment: Any
) -> str:
    lines, told = [], fits(grid, fitted)
    for column in grid.columns:
        cells = grid.cells[grid.cells["column"].eq(column) & grid.cells["state"].ne("not run")]
        here = told[told["task"].eq(column) & told["model"].isin(cells["row"])]
        if here["comment"].eq("").any():
            lines.append(f"{column}: {' | '.join(map(_exponent, records(here)))}.")
    items = [i for c in grid.columns for r in grid.model_rows for i in requirements_of(grid, c, r)]
    method = (
        f"{METHOD} Lines: the fitted growth; where there are too few sizes, from point to point, "
        "past those that only bound D from above."
    )
    lines.append(
        method if lines else "Too few sizes for an exponent: lines go from point to point."
    )
    beside = "Models of one L stand side by side. " if len(grid.model_rows) > 1 else ""
    lines.append(f"{beside}{_evidence(items, grid)}")
    return footer([*lines, *sentences(budgets)], grid, experiment)


def _exponent(item: Any) -> str:
    """Return a row of `fits` in words."""
    theory = f" (theory: {item.theory})" if item.theory else ""
    if item.comment:
        return f"{item.model} {item.comment}{theory}"
    return f"{item.model} {Growth(item.exponent, item.low, item.high, item.sizes).text()}{theory}"


def _evidence(items: list[Requirement], grid: Grid) -> str:
    reached = [item for item in items if item.dim is not None]
    confirmed = sum(item.confirmed for item in reached)
    begun = sum(item.searched for item in reached) - confirmed
    plain = f"{seeds_text(grid.cells).capitalize()}."
    if not confirmed and not begun:
        return plain
    words = f"{confirmed} of {len(reached)} least D are confirmed"
    words += f", {begun} in part" if begun else ""
    rest = "" if confirmed + begun == len(reached) else f" The others: {plain}"
    return (
        f"{words}: the median seed reaches 90 % at its best rate, at the D below, where one was "
        f"measured, at none.{rest}"
    )
