"""Learning curves, and the share of chains still right after each token."""

from collections.abc import Iterable
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from common import UserError
from plots import data, style

HEIGHT = 1.15  # inches of a panel


@style.styled
def draw(
    table: pd.DataFrame, records: data.Records, width: float, facets: data.Facets = None, **_: Any
) -> Figure:
    """Share of validation chains that are right, a line per D and seed. Ring: a run that stopped
    early, at its target. Dotted: 90 %."""
    table = table.loc[:, ~table.columns.str.startswith("measure.")]  # runs, not evaluations
    tasks = [config.get("task", {}) for config in data.recorded(table, records, "config")]
    for key in ("size", "format"):  # those of training, not of the evaluation
        table = table.assign(
            **{key: [task.get(key, v) for task, v in zip(tasks, table[key], strict=True)]}
        )
    rows = panels_by_size(table, facets, records, "curve")
    figure, grid, colors = new_grid(rows, width, "correct chains (%)", "training step")
    for run in rows.drop_duplicates(["panel", "row", "run"]).to_dict("records"):
        curve = records[run["cell"]]["curve"]
        axes, color = grid[run["panel"], run["row"]], colors[run["dim"]]
        right = [100 * share for share in curve["validation_chain_exact_match"]]
        marker = "." if len(right) == 1 else None
        axes.plot(curve["step"], right, color=color, linewidth=1, marker=marker)
        if run.get("stopped") == "solved":
            axes.plot(curve["step"][-1:], right[-1:], "o", color=color, markerfacecolor="white")
    return figure


@style.styled
def draw_errors(
    table: pd.DataFrame, records: data.Records, width: float, facets: data.Facets = None, **_: Any
) -> Figure:
    """Share of test chains without a mistake so far (Kaplan–Meier), seeds pooled. Dotted: 90 %."""
    rows = panels_by_size(table, facets, records, "errors")
    figure, grid, colors = new_grid(
        rows, width, "chains still right (%)", "tokens after the prompt"
    )
    for (panel, row, dim), part in rows.groupby(["panel", "row", "dim"], sort=True):
        places, share = survival(e["by_position"] for e in data.recorded(part, records, "errors"))
        grid[panel, row].step(places, 100 * share, where="mid", color=colors[dim])
    return figure


def survival(counts: Iterable[list[list[int]]]) -> tuple[np.ndarray, np.ndarray]:
    """Places and the share of chains still right after each (Kaplan-Meier): the product of
    1 - first mistakes / chains that get there. `counts` has for each seed rows [place, first
    mistakes there, chains that get there]."""
    rows = [row for seed in counts for row in seed]
    total = pd.DataFrame(rows, columns=["place", "wrong", "came"]).groupby("place").sum()
    total = total[total["came"] > 0]
    share = (1 - total["wrong"] / total["came"]).cumprod()
    return total.index.to_numpy(), share.to_numpy()


def panels_by_size(
    table: pd.DataFrame, facets: data.Facets, records: data.Records, part: str
) -> pd.DataFrame:
    """Labelled rows whose records have `part`, e.g. curve. `panel` names task and size, largest
    first."""
    named = {k: v for k, v in (facets or {}).items() if k in ("columns", "rows", "only") and v}
    rows = data.panels(table, named)
    rows = rows[data.recorded(rows, records, part).map(bool)]
    if rows.empty:
        raise UserError(f"these runs have no recorded {part}; is cells.jsonl missing?")
    rows = rows.assign(place=pd.factorize(rows["column"])[0])
    rows = rows.sort_values(["place", "size"], ascending=[True, False], kind="stable")
    return rows.assign(panel=rows["column"] + ", n = " + rows["size"].astype(str))


def new_grid(
    rows: pd.DataFrame, width: float, y_label: str, x_label: str
) -> tuple[Figure, dict[Any, Any], dict[Any, Any]]:
    """A figure with a row per `panel` and a column per `row`, its axes by both, a colour per D."""
    ordered = data.in_order(rows)
    down, across = rows["panel"].unique(), ordered["row"].unique()
    width = min(width, 0.7 + 1.9 * len(across))
    figure = style.new_figure(width, HEIGHT * len(down) + 0.7)
    grid = figure.subplots(len(down), len(across), sharex=True, sharey=True, squeeze=False)
    for axes, row in zip(grid[0], across, strict=True):
        axes.set_title(style.wrapped(row, (width - 0.6) / len(across)))
    for axes, panel in zip(grid[:, 0], down, strict=True):
        axes.set_ylabel(style.wrapped(panel, HEIGHT))
    grid[0, 0].set(ylim=(-4, 104), yticks=[0, 25, 50, 75, 100])
    grid[0, 0].xaxis.set_major_locator(MaxNLocator(3, integer=True))  # shared by all
    for axes in figure.axes:
        axes.axhline(90, **style.RULE)
    figure.supylabel(y_label, fontsize="medium")
    dims = sorted(rows["dim"].unique())
    shades = matplotlib.colormaps["viridis_r"](np.linspace(0.25, 1.0, len(dims)))
    colors = dict(zip(dims, shades, strict=True))
    looks = {f"D = {dim}": {"color": color} for dim, color in colors.items()}
    style.legend_below(figure, looks, x_label)
    places = {(p, r): grid[i, j] for i, p in enumerate(down) for j, r in enumerate(across)}
    return figure, places, colors
