"""Longest prefix labelled right at 90 %, n*, against the number of layers; per group and model.

n* is read from the records of where labels break (``errors/``).  Log-depth constructions let it
grow exponentially with the number of layers, which is a straight line here.  Its slope is fitted as
that of least D against L (`plots.fit`); of words labelled to their end n* is only a lower bound.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.markers import CARETUPBASE
from matplotlib.ticker import FixedLocator

from plots import style
from plots.cells import Grid, gather, records
from plots.curves import read_errors
from plots.fit import Growth, growth
from plots.layout import Layout
from plots.looks import variant_looks
from plots.text import csv_text
from plots.unplanned import not_planned
from plots.words import footer, missing_text

NAME = "depth"
GROUP = "task.monoid"
NONE = 0.5  # where a prefix of 0 labels stands on the logarithmic axis

FIT: dict[str, Any] = {"linestyle": (0, (9, 3)), "linewidth": 0.7}
BOUND: dict[str, Any] = {"color": style.GREY, "linestyle": "none", "marker": CARETUPBASE,
                         "markersize": 4.0}  # fmt: skip


def draw(table: pd.DataFrame, plan: pd.DataFrame, experiment: Any, out: Path) -> list[Path]:
    """Write ``depth`` as PDF and PNG, and ``depth[_fit].csv``; the records lie beside ``out``."""
    paths = style.styled(style.save)(figure(table, plan, experiment, out.parent), out, NAME)
    frame = prefixes(_grid(table, plan), out.parent)
    for name, text in ((NAME, csv_text(frame)), (f"{NAME}_fit", csv_text(fits(frame)))):
        paths.append(style.write_text(text, out / f"{name}.csv"))
    return paths


def prefixes(grid: Grid, folder: Path) -> pd.DataFrame:
    """Return n* of every finished run: columns group, model, size, layers, seed, longest_prefix.

    Without a record, and for formats without labels, there is none.
    """
    rows = []
    labels = grid.cells[["point", "row", "x", "y"]]
    for run in records(grid.rows.merge(labels, on="point", how="left")):
        found = read_errors(folder, run.cell) if run.status == "done" else None
        if found is not None and "longest_prefix" in found:
            told = (run.y, run.row, run.size, run.x, run.seed, int(found["longest_prefix"]))
            rows.append(told)
    return pd.DataFrame(
        rows, columns=["group", "model", "size", "layers", "seed", "longest_prefix"]
    )


def fits(frame: pd.DataFrame) -> pd.DataFrame:
    """Return how often n* doubles per layer, a row per group and model of the group's largest n.

    ``doublings`` and its 95 % interval ``low``, ``high`` are empty where fewer than three depths
    were measured or fewer than two runs break before the last label.
    """
    rows = []
    for (group, model), part in _largest(frame).groupby(["group", "model"]):
        found = _growth(part)
        told = (found.exponent, found.low, found.high) if found else (np.nan,) * 3
        rows.append((group, model, *told, part["layers"].nunique(), part["seed"].nunique()))
    columns = ["group", "model", "doublings", "low", "high", "depths", "seeds"]
    return pd.DataFrame(rows, columns=columns)


def _growth(part: pd.DataFrame) -> Growth | None:
    """Fit log2 n* = a + b M: the growth of n* in 2^M; each run is a point of its own."""
    longest, asked = part["longest_prefix"].to_numpy(float), part["size"].to_numpy(float)
    return growth(2.0 ** part["layers"], longest, np.where(longest < asked, longest + 1, np.inf))


def _largest(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["size"] == frame.groupby("group")["size"].transform("max")]


def _grid(table: pd.DataFrame, plan: pd.DataFrame) -> Grid:
    key = GROUP if GROUP in table or GROUP in plan else "task"
    return gather(table, plan, {"columns": ["format"], "rows": ["model"], "x": "layers", "y": key})


@style.styled
def figure(table: pd.DataFrame, plan: pd.DataFrame, experiment: Any, folder: Path) -> Figure:
    """Return the figure of each group's largest n; axes carry gids ``panel//<group>``.

    ``folder`` holds ``errors/``.
    """
    grid = _grid(table, plan)
    frame = _largest(prefixes(grid, folder))
    looks = variant_looks(grid)
    most = int(grid.cells["size"].max())
    least = frame["longest_prefix"].min() if len(frame) else 0
    drawn = set(frame["model"])
    entries = [Line2D([], [], label=row, **look) for row, look in looks.items() if row in drawn]
    entries += _legend(most, frame)
    groups = sorted(grid.cells["y"].unique())
    layout = Layout(
        [""],
        [style.setting_label(GROUP, group) for group in groups],
        entries,
        _footer(grid, frame, experiment),
        widths=1.6,
        heights=1.8,
        x_label="layers M",
        y_label="longest prefix at 90 %, n* (labels)",
    )
    for group, axes in zip(groups, layout.panels.values(), strict=True):
        _draw_panel(axes, frame[frame["group"] == group], looks, _ticks(least, most))
        axes.xaxis.set_major_locator(FixedLocator(sorted(grid.cells["x"].unique())))
    return layout.figure


def _draw_panel(
    axes: Axes, frame: pd.DataFrame, looks: dict[str, dict[str, Any]], ticks: list[float]
) -> None:
    axes.set_yscale("log", base=2)
    axes.set_ylim(ticks[0] / 1.3, ticks[-1] * 1.5)
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    axes.set_yticklabels(["0" if tick == NONE else f"{tick:g}" for tick in ticks])
    axes.axhline(ticks[-1], **style.THRESHOLD_LINE)
    if frame.empty:
        style.say_in(axes, "no records")
    for row, look in looks.items():
        part = frame[frame["model"] == row].groupby("layers")["longest_prefix"]
        middle, low, high = (values.clip(lower=NONE) for values in
                             (part.median(), part.min(), part.max()))  # fmt: skip
        if (part.size() > 1).any():
            axes.errorbar(middle.index, middle, [middle - low, high - middle], fmt="none",
                          ecolor=look["color"], linewidth=0.6)  # fmt: skip
        axes.plot(middle.index, middle, gid=f"cells/{row}", clip_on=False, **look)
        if fitted := _growth(frame[frame["model"] == row]):
            ends = _below(fitted, middle.index.min(), middle.index.max(), ticks[-1])
            axes.plot(ends, fitted.at(2.0**ends), gid=f"fit/{row}", color=look["color"], **FIT)
    _mark_bounds(axes, frame)


def _legend(most: int, frame: pd.DataFrame) -> list[Line2D]:
    """Return the handles of what is no model: the ceiling, what lies beyond it, and the fits."""
    looks = {f"all n = {most} labels": style.THRESHOLD_LINE}
    if (frame["longest_prefix"] >= frame["size"]).any():
        looks["n* may be greater: no longer word was asked for"] = BOUND
    if _doublings(frame):
        looks["fit, in its model's colour"] = {"color": style.GREY, **FIT}
    return [Line2D([], [], label=label, **look) for label, look in looks.items()]


def _below(fitted: Growth, first: float, last: float, most: float) -> np.ndarray:
    """Return the depths between which the fitted line runs below the ceiling, none where nowhere.

    Above it nothing could be measured.
    """
    heights = np.log2(fitted.at(2.0 ** np.array([first, last])) / most)
    if (heights > 0).all():
        return np.array([])
    if (heights <= 0).all():
        return np.array([first, last])
    crossing = first + (last - first) * heights[0] / (heights[0] - heights[1])
    return np.array([first, crossing] if heights[0] <= 0 else [crossing, last])


def _mark_bounds(axes: Axes, frame: pd.DataFrame) -> None:
    """Put an arrow over each depth at which a model labels whole words: n* is a lower bound."""
    medians = frame.groupby(["model", "layers"])[["longest_prefix", "size"]].median()
    whole = medians[medians["longest_prefix"] >= medians["size"]].reset_index()
    if len(whole):
        heights = whole.groupby("layers")["size"].max()
        axes.plot(heights.index, 1.13 * heights, gid="bound", **BOUND)


def _ticks(least: float, most: int) -> list[float]:
    """Return powers of two up from the least prefix drawn, and all labels; 0 where it is none."""
    low = int(np.log2(least)) if least >= 1 else 0
    powers = [2**i for i in range(low, int(np.log2(most)) + 1)]
    return [*([] if least >= 1 else [NONE]), *sorted({most, *powers})]


def _footer(grid: Grid, frame: pd.DataFrame, experiment: Any) -> str:
    counts = frame.groupby(["group", "model", "layers", "size"]).size()
    seeds = "one seed each" if (counts <= 1).all() else (
        f"median of {counts.min()} to {counts.max()} seeds, bars from minimum to maximum"
    )  # fmt: skip
    told = filter(None, [missing_text(grid.cells), not_planned(grid, "M")])
    lines = [
        "n*: as many labels, from the first on, as are right in 90 % of the test words each; "
        f"{seeds}. {' '.join(told)}",
        *_doublings(frame),
        "Theory: n* may grow exponentially with M, a straight line here (log-depth constructions), "
        "and without bound at constant M for solvable groups; one recurrent layer suffices for all "
        "groups. Not learned is not the same as not expressible.",
    ]
    return footer(lines, grid, experiment)


def _doublings(frame: pd.DataFrame) -> list[str]:
    """Return the fitted slopes in words; nothing where none could be fitted."""
    told = [
        f"{group}, {model}: {found.text()}"
        for (group, model), part in frame.groupby(["group", "model"])
        if (found := _growth(part))
    ]
    if not told:
        return []
    return [f"Doublings of n* per layer, with 95 % interval (long dashes): {'; '.join(told)}."]
