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
PREFIX = "longest prefix right (labels)"


@style.styled
def draw(
    table: pd.DataFrame,
    records: data.Records,
    over: str,
    width: float,
    facets: data.Facets = None,
    **_: Any,
) -> Figure:
    """`over` is size, kind or layers. "layers" shows n*, the longest prefix right in 90 % of the
    test sequences, on a logarithmic axis, if `records` (`experiments.table.read_cells`) have it. Of
    `facets`, only `only` counts."""
    rows = _points(data.finished_rows(table, facets), records, over)
    looks = style.line_looks(rows)
    down, across = rows["group"].unique(), rows["column"].unique()
    if len(across) == 1:
        down, across = across, down
        rows = rows.rename(columns={"group": "column", "column": "group"})
    figure = style.new_figure(min(width, 0.7 + 2.1 * len(across)), HEIGHT * len(down) + 0.8)
    grid = figure.subplots(len(down), len(across), sharex=True, sharey=True, squeeze=False)
    for i, group in enumerate(down):
        for j, column in enumerate(across):
            part = rows[(rows["group"] == group) & (rows["column"] == column)]
            _draw_panel(grid[i, j], part, looks, categorical=over == "kind")
            if i == 0:
                grid[i, j].set_title(column)
        grid[i, 0].set_ylabel(group if len(down) > 1 else "")
    _finish(figure, rows, over, prefix=over == "layers" and bool(records))
    if over == "kind":
        looks = {row: {**look, "linestyle": "none"} for row, look in looks.items()}
    label = {"size": "problem size n", "layers": "layers", "kind": "kind of instance"}[over]
    style.legend_below(figure, looks, label)
    return figure


def _points(table: pd.DataFrame, records: data.Records, over: str) -> pd.DataFrame:
    """A row per cell (and kind): group, column, row, x, value, chance."""
    facets = {"columns": ["format"], "rows": ["model"], "x": ["size"], "y": ["task.monoid"]}
    if "task.monoid" not in table:
        facets["y"] = ["task"]
    if over == "layers":
        facets["x"] = ["layers"]
    rows = data.panels(table, facets)
    rows = rows.rename(columns={"y": "group"}).assign(value=100 * rows["answer_accuracy"])
    if over == "kind":
        return _by_kind(rows, records)
    if over == "layers" and records:
        prefix = data.errors_of(rows, records).map(lambda e: e.get("longest_prefix", np.nan))
        rows = rows.assign(value=prefix.astype(float)).dropna(subset=["value"])
    return rows


def _by_kind(rows: pd.DataFrame, records: data.Records) -> pd.DataFrame:
    kinds = [
        {"cell": cell, "kind": kind, "share": 100 * right / count}
        for cell, found in zip(rows["cell"], data.errors_of(rows, records), strict=True)
        for kind, (right, count) in found.get("by_kind", {}).items()
    ]
    found = rows.merge(pd.DataFrame(kinds, columns=["cell", "kind", "share"]), on="cell")
    every = rows.assign(kind="all", share=rows["value"])
    both = pd.concat([every, found], ignore_index=True)
    return both.assign(x=both["kind"], value=both["share"])


def _draw_panel(
    axes: Axes, rows: pd.DataFrame, looks: Mapping[str, dict[str, Any]], categorical: bool
) -> None:
    names: list[str] = []
    if categorical:
        names = sorted({"all", *rows["x"]}, key=lambda kind: (kind != "all", kind != "yes", kind))
    for place, (row, look) in enumerate(looks.items()):
        part = rows[rows["row"] == row]
        if part.empty:
            continue
        value = part.groupby("x")["value"].agg(["median", "min", "max"])
        x = np.array([names.index(name) for name in value.index] if names else value.index, float)
        if names:
            x += 0.13 * (place - (len(looks) - 1) / 2)
            look = {**look, "linestyle": "none"}
        spread = [value["median"] - value["min"], value["max"] - value["median"]]
        axes.errorbar(x, value["median"], spread, ecolor=look["color"], elinewidth=0.7, **look)
    if names:
        axes.set_xticks(range(len(names)), [name.replace(" ", "\n") for name in names])
    else:
        axes.set_xticks(sorted(rows["x"].unique()))


def _finish(figure: Figure, rows: pd.DataFrame, over: str, prefix: bool) -> None:
    figure.supylabel(PREFIX if prefix else "correct answers (%)", fontsize="medium")
    for axes in figure.axes:
        if prefix:
            _prefix_axis(axes, rows)
        else:
            style.percent_axis(axes)
    if not prefix:
        _draw_chance(figure, 100 * rows["chance_accuracy"].mean(), over)


def _draw_chance(figure: Figure, chance: float, over: str) -> None:
    """A dashed line; over kinds, at "all" alone, since one kind may have one answer only."""
    left, right = (-0.45, 0.45) if over == "kind" else figure.axes[0].get_xlim()
    for axes in figure.axes:
        axes.plot([left, right], [chance] * 2, scalex=False, **style.CHANCE)
    below = chance > 20  # room above the axis
    figure.axes[0].annotate(
        "chance", (right, chance), xytext=(-1, -2 if below else 2), textcoords="offset points",
        ha="right", va="top" if below else "bottom", color=style.GREY, fontsize="small",
    )  # fmt: skip


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
