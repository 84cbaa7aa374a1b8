"""D90 against the longest sequence L, a panel per task and a line per model.

The bar below a point reaches down to the next smaller D tried. Arrow down: the smallest D tried
passes, so D90 is an upper bound, at which lines break; arrow up: no D tried passes. Dotted: how
linear attention's D grows by Table 1 of the paper (≤: at most, ≥: at least), from its first D90
that is not a bound.
"""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.markers import CARETDOWN, CARETUP

from common import UserError
from plots import data, style, theory

HEIGHT = 2.1  # inches
APART = 0.022  # of a panel's width between the bars of two models


@style.styled
def draw(table: pd.DataFrame, facets: data.Facets = None, *, width: float, **_: Any) -> Figure:
    groups = data.d90_of_groups(table, facets)
    if (groups.groupby("column")["max_len"].nunique() < 2).all():
        raise UserError("no task has two sizes")
    columns, looks = groups["column"].unique(), style.line_looks(groups)
    panel = min(width - 0.6, 2.05 * len(columns)) / len(columns)  # inches
    figure = style.new_figure(0.6 + panel * len(columns), HEIGHT)
    figure.subplots(1, len(columns), sharey=True, squeeze=False)
    for axes, column in zip(figure.axes, columns, strict=True):
        _draw_lines(axes, groups[groups["column"] == column], looks, panel)
        axes.set_title(style.wrapped(column, panel))
    low, high = figure.axes[0].get_ylim()
    powers = 2.0 ** np.arange(np.ceil(np.log2(low)), np.floor(np.log2(high)) + 1)
    for axes in figure.axes:
        _mark(axes.yaxis, powers.tolist())
        axes.grid(True)
    theirs = {**style.RULE, "color": style.model_look("linear").color}
    for axes, column in zip(figure.axes, columns, strict=True):
        if _draw_theory(axes, groups[groups["column"] == column], theirs):
            looks["Linear's growth in the paper's Table 1"] = theirs
    figure.axes[0].set_ylabel("D90")
    style.legend_below(figure, looks, "longest sequence L (tokens)")
    return figure


def _draw_lines(
    axes: Axes, groups: pd.DataFrame, looks: dict[str, dict[str, Any]], panel: float
) -> None:
    axes.set(xscale="log", yscale="log")
    shortest, longest = groups["max_len"].min(), groups["max_len"].max()
    span = 1.44 * longest / shortest
    for place, (row, look) in enumerate(looks.items()):
        part = groups[groups["row"] == row].sort_values("max_len")
        apart = min(APART, 0.2 / len(looks))
        lengths = part["max_len"] * span ** (apart * (place - (len(looks) - 1) / 2))
        bounded = part["low"] > 0
        axes.plot(lengths, part["d90"].where(bounded), **look)
        axes.plot(lengths, part["d90"].mask(bounded), **{**look, "linestyle": "none"})
        _draw_brackets(axes, lengths, part, look["color"])
    _mark(axes.xaxis, spaced_ticks(sorted(groups["max_len"].unique()), 0.2 / max(panel - 0.4, 0.1)))
    axes.set_xlim(shortest / 1.2, longest * 1.2)
    seen = [*groups["d90"].dropna(), *groups["low"][groups["low"] > 0]]
    axes.set_ylim(min([*axes.get_ylim(), min(seen) / 1.6]), max(axes.get_ylim()[1], max(seen) * 2))


def _mark(axis: Axis, numbers: list[float]) -> None:
    """Write only these numbers at a logarithmic axis."""
    axis.set_ticks(numbers, [f"{number:g}" for number in numbers])
    axis.set_ticks([], minor=True)


def spaced_ticks(lengths: list[float], apart: float) -> list[float]:
    """The lengths at least this share of a logarithmic axis apart, to be its ticks."""
    kept: list[float] = []
    for length in reversed(lengths):
        if not kept or kept[-1] / length > (lengths[-1] / lengths[0]) ** apart:
            kept.append(length)
    return kept[::-1]


def _draw_brackets(axes: Axes, lengths: pd.Series, groups: pd.DataFrame, color: str) -> None:
    low, d90 = groups["low"], groups["d90"]
    none, at_once = d90.isna(), low == 0
    both = ~none & ~at_once
    axes.vlines(lengths[both], low[both], d90[both], color, linewidth=3, alpha=0.35)
    axes.plot(lengths[none], low[none], "_", color=color, markersize=6)
    for marker, which, start, end in (
        (CARETUP, none, low, 1.5 * low), (CARETDOWN, at_once, d90, d90 / 1.4),
    ):  # fmt: skip
        axes.vlines(lengths[which], start[which], end[which], color, linewidth=1.2)
        axes.plot(lengths[which], end[which], marker=marker, linestyle="none", color=color)


def _draw_theory(axes: Axes, groups: pd.DataFrame, look: dict[str, Any]) -> bool:
    """Draw the slope predicted for linear attention from its first bracket on, if there is one."""
    known = groups["d90"].notna() & (groups["low"] > 0)
    own = groups[(groups["model"] == "linear") & known].sort_values("max_len")
    if own.empty or groups["max_len"].nunique() < 2:
        return False
    first = own.iloc[0]
    found = theory.prediction(first)
    if found is None:
        return False
    lengths = np.array([first["max_len"], groups["max_len"].max()])
    dims = first["d90"] * (lengths / first["max_len"]) ** found.exponent
    axes.plot(lengths, dims, **look)
    axes.annotate(
        f"{found.bound}{theory.POWERS[found.exponent]}", (lengths[1], dims[1]), xytext=(8, 0),
        textcoords="offset points", va="center", color=look["color"], annotation_clip=False,
    )  # fmt: skip
    return True
