"""Accuracy against D and against bytes of generation state, a line per number of heads.

Median of the seeds (faint: each), over D and over the size of the state that generation keeps of
one sequence. If this size determined accuracy, the lines would coincide there.
"""

import math
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from plots import data, style

HEIGHT = 1.5  # inches of a panel
AXES = {"dim": "embedding dimension D", "kib": "generation state (KiB)"}
MARKERS = ("o", "s", "^", "D", "v", "p")


@style.styled
def draw(table: pd.DataFrame, facets: data.Facets = None, *, width: float, **_: Any) -> Figure:
    """Accuracy over D above, over the state below, a line per number of heads. Ignores `facets`
    except `only`."""
    only = (facets or {}).get("only", {})
    rows = data.panels(table, {"x": ["dim"], "y": ["heads"], "only": only})
    panel = rows["column"] + ", " + rows["row"]
    rows = rows.assign(panel=panel, kib=rows["state_bytes"] / 1024)
    panels = rows["panel"].unique()
    given, width = width, min(width, 0.7 + 1.6 * len(panels))
    figure = style.new_figure(width, 2 * HEIGHT + 0.4)
    grid = figure.subplots(2, len(panels), sharey=True, sharex="row", squeeze=False)
    colors = style.dim_colors(rows["heads"].unique())
    looks = {
        value: {"color": color, "marker": MARKERS[place % len(MARKERS)]}
        for place, (value, color) in enumerate(colors.items())
    }
    for column, panel in zip(grid.T, panels, strict=True):
        column[0].set_title(style.wrapped(panel, width / len(panels)))
        part = rows[rows["panel"] == panel]
        for axes, over in zip(column, AXES, strict=True):
            _draw_panel(axes, part, over, looks)
    for axes_row, over in zip(grid, AXES, strict=True):
        _label(axes_row, rows, over, given / len(panels))
    figure.supylabel("correct answers (%)", fontsize="medium")
    style.legend_below(figure, {data.in_words("heads", h): look for h, look in looks.items()})
    return figure


def _draw_panel(
    axes: Axes, rows: pd.DataFrame, over: str, looks: dict[Any, dict[str, Any]]
) -> None:
    for value, look in looks.items():
        seeds = 100 * rows[rows["heads"] == value].set_index(over)["answer_accuracy"]
        if seeds.empty:
            continue
        axes.plot(seeds.index, seeds, linestyle="none", alpha=0.4, markersize=2.5, **look)
        median = seeds.groupby(level=0).median()
        axes.plot(median.index, median, markersize=3.5, **look)
    style.percent_axis(axes)


def _label(axes_row: Any, rows: pd.DataFrame, over: str, room: float) -> None:
    values = sorted(rows[over].unique())
    if over == "dim":
        ticks = [v for v in values if math.log2(v).is_integer()] or values
    else:
        powers = range(math.ceil(math.log2(values[0])), math.floor(math.log2(values[-1])) + 1)
        ticks = [2.0**power for power in powers][:: 2 if room > 1.2 else 4]
    label = AXES[over] if room > 1.5 else {"dim": "D", "kib": "KiB"}[over]
    for axes in axes_row:
        style.plain_log_axis(axes, "x", ticks)
        axes.set_xlabel(label)
