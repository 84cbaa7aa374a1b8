"""Learning curves, a panel per model and size.

Validation chains with an exact match, a line per D and seed. A ring marks a run that stopped early
because it had solved its task.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from plots import data, style

HEIGHT = 1.15  # inches of a panel


@style.styled
def draw(
    table: pd.DataFrame, records: data.Records, width: float, facets: data.Facets = None, **_: Any
) -> Figure:
    """`records` are from `read_cells`."""
    rows = panels_by_size(table, facets, records, "curve")
    figure, grid = new_grid(rows, width)
    colors = style.dim_colors(rows["dim"].unique())
    for run in rows.drop_duplicates(["panel", "row", "run"]).to_dict("records"):
        curve = records[run["cell"]]["curve"]
        axes, color = grid[run["panel"], run["row"]], colors[run["dim"]]
        right = [100 * share for share in curve["validation_chain_exact_match"]]
        axes.plot(curve["step"], right, color=color, linewidth=1)
        if run.get("stopped") == "solved":
            axes.plot(curve["step"][-1:], right[-1:], "o", color=color, markerfacecolor="white")
    for axes in figure.axes:
        style.percent_axis(axes)
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(3))
    figure.supylabel("correct chains (%)", fontsize="medium")
    dim_legend(figure, colors, "training step")
    return figure


def panels_by_size(
    table: pd.DataFrame, facets: data.Facets, records: data.Records, part: str
) -> pd.DataFrame:
    """Labelled rows whose records have `part`, e.g. curve. `panel` names task and size, largest
    first."""
    named = {k: v for k, v in (facets or {}).items() if k in ("columns", "rows", "only") and v}
    rows = data.panels(table, named)
    known = rows["cell"].map(lambda cell: records.get(cell, {}).get(part) or None)
    rows = data.recorded(rows, known, part).sort_values("size", ascending=False, kind="stable")
    return rows.assign(panel=rows["column"] + ", n = " + rows["size"].astype(str))


def new_grid(rows: pd.DataFrame, width: float) -> tuple[Figure, dict[Any, Any]]:
    """A figure with a row per `panel` and a column per `row`, and its axes by both."""
    ordered = data.in_order(rows)
    down, across = rows["panel"].unique(), ordered["row"].unique()
    width = min(width, 0.7 + 1.9 * len(across))
    figure = style.new_figure(width, HEIGHT * len(down) + 0.7)
    grid = figure.subplots(len(down), len(across), sharex=True, sharey=True, squeeze=False)
    for axes, row in zip(grid[0], across, strict=True):
        axes.set_title(style.wrapped(row, (width - 0.6) / len(across)))
    for axes, panel in zip(grid[:, 0], down, strict=True):
        axes.set_ylabel(style.wrapped(panel, HEIGHT))
    places = {(p, r): grid[i, j] for i, p in enumerate(down) for j, r in enumerate(across)}
    return figure, places


def dim_legend(figure: Figure, colors: Mapping[Any, Any], x_label: str) -> None:
    looks = {f"D = {dim}": {"color": color} for dim, color in colors.items()}
    style.legend_below(figure, looks, x_label)
