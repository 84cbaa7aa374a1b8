"""The least D at a quarter, half and all of the training budget.

One figure per task, a panel per problem size, a line per model.  A claim about a least D stands
only where the line is level at its end; where it still falls, the marker there is hollow and the
frontier is limited by the budget.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from plots import limits, style
from plots.budgets import FRACTIONS, Budgeted, Budgets, of_grid, sentences, steps_text
from plots.cells import Grid, gather
from plots.frontier import requirements_of
from plots.growth_text import evidence, requirements, unmeasured
from plots.labels import panels_of
from plots.layout import Layout
from plots.looks import row_look
from plots.text import csv_text, slugs
from plots.ticks import dim_axis
from plots.untried import without_untried, without_wider
from plots.words import footer, size_labels

NAME = "least_dim_vs_budget"
HEIGHT = 1.5  # inches of a panel
METHOD = (
    "Least D at a part of the budget: from each run's validation curve, chain exact match standing "
    "in for answer accuracy on the test set, at the same 90 %; a run that stopped early keeps its "
    "last value. Half-way a run's learning rate has not come down as at the end, so D there is, if "
    "anything, too large. Bar: down to the largest D measured that does not reach it."
)


def draw(table: pd.DataFrame, plan: pd.DataFrame, experiment: Any, out: Path) -> list[Path]:
    """Write ``least_dim_vs_budget_<task>`` and the table ``least_dim_vs_budget.csv``."""
    drawn = figures(table, plan, experiment, out.parent)
    save = style.styled(style.save)
    paths = [path for name, item in drawn.items() for path in save(item, out, name)]
    grid = gather(table, plan)
    text = csv_text(rows(of_grid(grid, out.parent)))
    return [*paths, style.write_text(text, out / f"{NAME}.csv")]


def rows(found: Budgets) -> pd.DataFrame:
    """Return a row per task, model, size and part of the budget: D lies in (``below``, ``dim``]."""
    told = [
        {
            "task": column, "size": size, "model": row, "budget": FRACTIONS[name],
            "below": least.below, "dim": least.dim, "shown": least.text(),
            "limited_by_budget": item.limited,
        }
        for (column, row, size), item in found.items()
        for name, least in item.least.items()
    ]  # fmt: skip
    return pd.DataFrame(told).astype({"below": "Int64", "dim": "Int64"})


@style.styled
def figures(
    table: pd.DataFrame, plan: pd.DataFrame, experiment: Any, folder: Path
) -> dict[str, Figure]:
    """Return a figure per task under its file's name; ``folder`` holds the curves."""
    grid = without_untried(gather(table, plan, panels_of(experiment)))
    found = of_grid(grid, folder)
    return {
        f"{NAME}_{slug}": _figure(grid, column, found, experiment, folder)
        for column, slug in slugs(grid.columns).items()
    }


def _figure(grid: Grid, column: str, found: Budgets, experiment: Any, folder: Path) -> Figure:
    cells = grid.cells[grid.cells["column"] == column]
    labels = size_labels(cells)
    models = [row for row in grid.model_rows if (cells["row"] == row).any()]
    here = {key: item for key, item in found.items() if key[0] == column}
    steps = steps_text(grid.trials[grid.trials["point"].isin(cells["point"])], folder)
    lines = [f"{column}, at most {steps}. {METHOD}", *sentences(here), *_otherwise(grid, here)]
    places = requirements(grid, [column])
    lines += [evidence([item for *_, item in places], grid), *unmeasured(places)]
    text = footer(lines, grid, experiment, column)
    layout = Layout(
        [""],
        list(labels.values())[::-1],  # n grows to the right
        _entries(models, grid, here),
        text,
        widths=1.2,
        heights=HEIGHT,
        x_label="share of the training budget",
        y_label="least D",
    )
    drawn = without_wider(grid).cells
    dims = [int(dim) for dim in np.unique(drawn.loc[drawn["column"] == column, "dim"])]
    for size, label in labels.items():
        axes = layout.axes("", label)
        for place, row in enumerate(models):
            if (column, row, size) in here:
                shift = 1.04 ** (place - (len(models) - 1) / 2)
                look = row_look(row, grid)
                _draw_model(axes, here[column, row, size], row, look, shift)
        if not axes.lines:
            style.say_in(axes, "no curves")
        _scale(axes, dims)
    return layout.figure


def _otherwise(grid: Grid, found: Budgets) -> list[str]:
    """Say where answers on the test set, by which all other figures go, give another least D."""
    told = []
    for (column, row, size), item in found.items():
        by_answers = {i.size: i for i in requirements_of(grid, column, row)}[size].dim
        here = item.least["all"]
        if by_answers is not None and by_answers != here.dim and here.text() != "?":
            told.append(f"{row} n = {size}: {by_answers} (here {here.text()})")
    return (
        [f"By answers, as in all other figures, the least D is: {'; '.join(told)}."] if told else []
    )


def _entries(models: list[str], grid: Grid, found: Budgets) -> list[Line2D]:
    """Return the legend: the models, and those marks that the figure has."""
    entries = [Line2D([], [], label=row, **row_look(row, grid)) for row in models]
    leasts = [least for item in found.values() for least in item.least.values()]
    larger = any(least.dim is None and least.below is not None for least in leasts)
    unbounded = any(least.dim is not None and least.below is None for least in leasts)
    told = {item.limited for item in found.values()}
    return [*entries, *limits.entries(told, larger, unbounded)]


def _draw_model(axes: Axes, item: Budgeted, row: str, look: dict[str, Any], shift: float) -> None:
    points = []
    for name, part in FRACTIONS.items():
        least, x = item.least[name], part * shift
        if least.dim is None:
            if least.below is not None:
                limits.arrow(axes, x, least.below, look, f"larger/{row}/{name}")
            continue
        points.append((x, least.dim))
        limits.bar(axes, x, least.below, least.dim, look, f"interval/{row}/{name}")
    if not points:
        return
    xs, ys = np.array(points).T
    axes.plot(xs, ys, gid=f"least/{row}", **look)
    if item.least["all"].dim is not None:
        limits.mark(axes, xs[-1], ys[-1], item.limited, look, row)


def _scale(axes: Axes, dims: list[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xlim(0.21, 1.19)
    axes.xaxis.set_major_locator(FixedLocator(list(FRACTIONS.values())))
    axes.xaxis.set_major_formatter(FixedFormatter(["¼", "½", "all"]))
    axes.xaxis.set_minor_locator(NullLocator())
    dim_axis(axes, dims, HEIGHT)
