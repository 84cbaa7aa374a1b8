"""Accuracy against problem size, kind of instance, or number of layers.

Columns are formats, rows tasks or monoids, lines models: the median of the seeds, with bars from
the least to the most accurate seed.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from plots import data, style

HEIGHT = 1.35  # inches of a panel
PREFIX = "longest correct prefix (labels)"


@style.styled
def draw(
    table: pd.DataFrame,
    records: data.Records,
    over: str,
    width: float,
    facets: data.Facets = None,
    **_: Any,
) -> Figure:
    """`over` is size, kind or layers. "layers" shows n*, the longest prefix with each label right
    in 90 % of the test sequences, on a logarithmic axis. `records` are from
    `experiments.table.read_cells`. Ignores `facets` except `only`."""
    rows = _points(data.finished_rows(table, facets), records, over)
    looks = style.line_looks(rows)
    kinds: list[str] = []
    if over == "kind":
        kinds = sorted(rows["x"].unique(), key=lambda kind: (kind != "all", kind != "yes", kind))
        looks = {row: {**look, "linestyle": "none"} for row, look in looks.items()}
        places = rows["row"].map(list(looks).index) - (len(looks) - 1) / 2
        rows["x"] = rows["x"].map(kinds.index) + min(0.13, 0.8 / len(looks)) * places
    down, across = rows["group"].unique(), rows["column"].unique()
    if len(across) == 1:
        down, across = across, down
        rows = rows.rename(columns={"group": "column", "column": "group"})
    figure = style.new_figure(min(width, 0.7 + 2.1 * len(across)), HEIGHT * len(down) + 0.8)
    grid = figure.subplots(len(down), len(across), sharex=True, sharey=True, squeeze=False)
    for i, group in enumerate(down):
        for j, column in enumerate(across):
            part = rows[(rows["group"] == group) & (rows["column"] == column)]
            _draw_panel(grid[i, j], part, looks)
            if over != "layers" and len(part):
                _draw_chance(grid[i, j], 100 * part.groupby("x")["chance_accuracy"].mean(), over)
            if i == 0:
                grid[i, j].set_title(column)
        grid[i, 0].set_ylabel(group if len(down) > 1 else "")
    if kinds:  # of all panels, which share the axis
        figure.axes[0].set_xticks(range(len(kinds)), [kind.replace(" ", "\n") for kind in kinds])
    else:
        figure.axes[0].set_xticks(sorted(rows["x"].unique()))
    figure.supylabel(PREFIX if over == "layers" else "correct answers (%)", fontsize="medium")
    for axes in figure.axes:
        if over == "layers":
            _prefix_axis(axes, rows)
        else:
            style.percent_axis(axes)
    label = {"size": "problem size n", "layers": "layers", "kind": "kind of instance"}[over]
    style.legend_below(figure, looks, label)
    return figure


def _points(table: pd.DataFrame, records: data.Records, over: str) -> pd.DataFrame:
    """A row per cell (and kind): group, column, row, x, value, chance."""
    x = "layers" if over == "layers" else "size"
    y = "task.monoid" if "task.monoid" in table else "task"
    rows = data.panels(table, {"columns": ["format"], "x": [x], "y": [y]})
    rows = rows.rename(columns={"y": "group"}).assign(value=100 * rows["answer_accuracy"])
    if over == "kind":
        return _by_kind(rows, records)
    if over == "layers":
        prefix = data.errors_of(rows, records).map(lambda errors: errors.get("longest_prefix"))
        rows = data.recorded(rows.assign(value=pd.to_numeric(prefix)), prefix, "longest_prefix")
    return rows


def _by_kind(rows: pd.DataFrame, records: data.Records) -> pd.DataFrame:
    by_kind = data.errors_of(rows, records).map(lambda errors: errors.get("by_kind") or None)
    known = data.recorded(rows, by_kind, "by_kind")
    shares = [
        {"cell": cell, "x": kind, "value": 100 * right / count}
        for cell, kinds in zip(known["cell"], by_kind.dropna(), strict=True)
        for kind, (right, count) in kinds.items()
    ]
    found = rows.drop(columns=["x", "value"]).merge(pd.DataFrame(shares), on="cell")
    return pd.concat([rows.assign(x="all"), found], ignore_index=True)


def _draw_panel(axes: Axes, rows: pd.DataFrame, looks: Mapping[str, dict[str, Any]]) -> None:
    for row, part in rows.groupby("row", sort=False):
        look, value = looks[str(row)], part.groupby("x")["value"].agg(["median", "min", "max"])
        spread = [value["median"] - value["min"], value["max"] - value["median"]]
        axes.errorbar(
            value.index, value["median"], spread, ecolor=look["color"], elinewidth=0.7, **look
        )


def _draw_chance(axes: Axes, chance: pd.Series, over: str) -> None:
    """A dashed line; over kinds, at "all" alone, since one kind may have one answer only."""
    if over == "kind":
        axes.plot([-0.45, 0.45], [chance.iloc[0]] * 2, scalex=False, **style.CHANCE)
    else:
        axes.plot(chance.index, chance, scalex=False, **style.CHANCE)


def _prefix_axis(axes: Axes, rows: pd.DataFrame) -> None:
    """Make the axis logarithmic up to the whole length, with 0 below 1 if needed."""
    whole, least = rows["size"].max(), rows["value"].min()
    powers = [2.0**k for k in range(int(np.log2(whole)) + 1) if least / 2 < 2**k < whole / 1.3]
    ticks = [0, *powers, whole] if least < 1 else [*powers, whole]
    axes.set_yscale("symlog", base=2, linthresh=1)
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_ylim(0.8 * least if least >= 1 else -0.3, 1.2 * whole)
    axes.axhline(whole, **style.RULE)
