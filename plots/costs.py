"""The cost of 90 %, a row per cost metric, on a logarithmic axis.

Each dot is a problem size: the cost of a model at its D90 relative to standard attention's at its
own. k/n: cheaper at k of n sizes (times: by at least 10 %). Title: how many sizes reach 90 %, if
not all. Training counts until 90 % of the validation chains are correct; sizes at which the median
seed does not get there are omitted, as are costs not measured. Upper bounds on D90 count as D90.
"""

import itertools
import math
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from common import UserError
from experiments.d90 import settings_of
from experiments.grid import BASELINE
from plots import data, style

MAX_PANELS = 6
BATCH = 64
GREEN = "#eaf4ec"
SPEEDS = ["answer_seconds", "tokens_per_second", "training_step_seconds"]


class Metric(NamedTuple):
    """A cost: its group and name in the figure, its heading in the table, the table's unit, and
    the factor from which it counts as cheaper: above rounding or, for times, noise."""

    group: int
    label: str
    heading: str
    unit: float
    margin: float = 1.001


METRICS = {
    "state_bytes": Metric(0, "memory: generation state", "state KiB", 1024),
    "memory": Metric(0, "memory: weights and state, batch 1", "memory KiB, batch 1", 1024),
    "batch_memory": Metric(0, "memory: weights and state, batch 64", "memory KiB, batch 64", 1024),
    "token_time": Metric(1, "time per token, batch 64", "µs/token, batch 64", 1e-6, 1 / 0.9),
    "answer_time": Metric(1, "time per answer, batch 1", "ms/answer, batch 1", 1e-3, 1 / 0.9),
    "flops_total": Metric(2, "inference FLOPs", "inference MFLOPs", 1e6),
    "flops_linear_layers": Metric(2, "inference FLOPs, linear layers", "linear-layer MFLOPs", 1e6),
    "training_flops": Metric(3, "training FLOPs", "training TFLOPs", 1e12),
    "training_time": Metric(3, "training time", "training core-seconds", 1, 1 / 0.9),
}


def costs(
    table: pd.DataFrame, speeds: pd.DataFrame | None = None, facets: data.Facets = None
) -> pd.DataFrame:
    """A row per task, size and model with a D90, and its cost in each of `METRICS`, in bytes,
    seconds and FLOPs. `speeds` is the table of `benchmarks costs`; costs not timed at this D are
    nan. `cell` is one of those at this D."""
    groups = data.d90_of_groups(table, facets)
    groups = groups[groups["d90"].notna()].assign(dim=lambda frame: frame["d90"].astype(int))
    keys = [*settings_of(groups), "dim"]
    rows = data.finished_rows(table, facets)
    steps = rows["steps_to_90"].fillna(math.inf)  # seeds that did not get there
    flops = rows["flops_training"] * steps / rows["steps"]
    cells = rows.assign(steps_to_90=steps, training_flops=flops).groupby(keys, dropna=False)
    spent = cells[["steps_to_90", "training_flops"]].median().replace(math.inf, math.nan)
    spent["cell"] = cells["cell"].first()
    groups = groups.merge(spent.reset_index(), on=keys, how="left")
    timed = _speeds_of(groups, speeds)
    weights = 4 * groups["params"]
    return groups.assign(
        memory=weights + groups["state_bytes"],
        batch_memory=weights + BATCH * groups["state_bytes"],
        token_time=1 / timed["tokens_per_second"],
        answer_time=timed["answer_seconds"],
        training_time=groups["steps_to_90"] * timed["training_step_seconds"],
    )


def _speeds_of(groups: pd.DataFrame, speeds: pd.DataFrame | None) -> pd.DataFrame:
    if speeds is None:
        return pd.DataFrame(math.nan, index=groups.index, columns=SPEEDS)
    keys = [key for key in (*settings_of(groups), "max_len", "dim") if key in speeds]
    known = speeds.drop_duplicates(keys)[[*keys, *SPEEDS]].astype(dict.fromkeys(keys, object))
    timed = groups[keys].astype(object).merge(known, on=keys, how="left")
    return timed.set_index(groups.index)[SPEEDS]


def ratios(
    table: pd.DataFrame, speeds: pd.DataFrame | None = None, facets: data.Facets = None
) -> pd.DataFrame:
    """How many times less than standard attention each model costs, a row per task, size, model and
    `metric`: `saving` (above 1: it saves), and both D90."""
    both = data.join_baseline(costs(table, speeds, facets), ["d90", *METRICS])
    both = both[both["model"] != BASELINE]
    both = both.assign(**{name: both[f"{name}_base"] / both[name] for name in METRICS})
    kept = ["task", "column", "row", "model", "size", "max_len", "d90", "d90_base"]
    found = both.melt(kept, list(METRICS), var_name="metric", value_name="saving")
    return found.dropna(subset="saving")


@style.styled
def draw(
    table: pd.DataFrame,
    speeds: pd.DataFrame | None = None,
    facets: data.Facets = None,
    *,
    width: float,
    **_: Any,
) -> Figure:
    """A panel per model; UserError for none or more than `MAX_PANELS`."""
    found = ratios(table, speeds, facets)
    rows = found["row"].unique()
    if not len(rows):
        raise UserError(
            f"costs need model={BASELINE} and another model that both reach 90 % at one size"
        )
    if len(rows) > MAX_PANELS:
        raise UserError(
            f"{len(rows)} models besides {BASELINE} reach 90 %, but the figure has room for "
            f"{MAX_PANELS}: choose with models={BASELINE},..."
        )
    found["area"] = 12 + 11 * (found.groupby("column")["size"].rank(method="dense") - 1)
    metrics = [name for name in METRICS if (found["metric"] == name).any()]
    places = {  # heights of the metrics' rows, with a gap between groups
        name: place + 0.35 * METRICS[name].group for place, name in enumerate(metrics)
    }
    colors = dict(zip(found["column"].unique(), itertools.cycle(style.CATEGORIES)))
    solved = _solved(table, facets)
    shape = (len(rows), 1) if width < 5 else (1, len(rows))
    figure = style.new_figure(width, (0.28 * len(metrics) + 0.4) * shape[0] + 0.7)
    grid = figure.subplots(*shape, sharex=True, sharey=True, squeeze=False)
    octaves = max(4.4, np.log2(found["saving"]).abs().max() + 0.7)
    for axes, row in zip(grid.flat, rows, strict=True):
        room = (width - 1.9) / shape[1]
        _draw_panel(axes, found[found["row"] == row], colors, places)
        if room > 1.6:
            _count_savings(axes, found[found["row"] == row], places)
        _finish(axes, octaves, places, room)
        axes.set_title(style.wrapped(f"{row}{solved[row]}", room))
    dot = {"marker": "o", "linestyle": "none", "markersize": 5}
    looks = {column: {"color": color, **dot} for column, color in colors.items()}
    if (found.groupby("column")["size"].nunique() > 1).any():
        looks["larger dot: larger problem"] = {"color": style.GREY, **dot, "fillstyle": "none"}
    base = style.model_look(BASELINE).label.lower()
    label = f"more  ←  cost relative to {base} attention, each model at its D90  →  less"
    style.legend_below(figure, looks, label)
    return figure


def _solved(table: pd.DataFrame, facets: data.Facets) -> dict[str, str]:
    """ " (11 of 12 sizes)" of each model that fails at a size where standard attention has a D90,
    else ""."""
    groups = data.d90_of_groups(table, facets)
    sizes, reached = groups[["column", "size"]].apply(tuple, axis=1), groups["d90"].notna()
    base = sizes[reached & (groups["model"] == BASELINE)]
    found = {}
    for row, own in reached[sizes.isin(base)].groupby(groups["row"]):
        found[str(row)] = f" ({own.sum()} of {len(own)} sizes)" * (not own.all())
    return found


def _draw_panel(
    axes: Axes, found: pd.DataFrame, colors: dict[str, str], places: dict[str, float]
) -> None:
    apart = min(0.25, 0.5 / max(1, len(colors) - 1))
    for i, (column, color) in enumerate(colors.items()):
        part = found[found["column"] == column]
        heights = part["metric"].map(places).astype(float) + apart * (i - (len(colors) - 1) / 2)
        axes.scatter(
            np.log2(part["saving"]), heights, part["area"], facecolor=(color, 0.4),
            linewidth=0.8, edgecolor=color, zorder=3,
        )  # fmt: skip


def _count_savings(axes: Axes, found: pd.DataFrame, places: dict[str, float]) -> None:
    """Write beside each row how many of its sizes cost less."""
    texts = {-0.6: "cheaper at"}  # above the first row
    for metric, savings in found.groupby("metric")["saving"]:
        cheaper = savings > METRICS[str(metric)].margin
        texts[places[str(metric)]] = f"{cheaper.sum()}/{len(savings)}"
    for place, text in texts.items():
        axes.annotate(
            text, (1, place), (3, 0), xycoords=axes.get_yaxis_transform(),
            textcoords="offset points", va="center_baseline", fontsize="small",
        )  # fmt: skip


def _finish(axes: Axes, octaves: float, places: dict[str, float], room: float) -> None:
    step = 2 if octaves < 7 and room > 1.8 else 4
    ticks = np.arange(-(octaves // step) * step, octaves + 0.1, step)
    axes.set_xlim(-octaves, octaves)
    axes.set_xticks(ticks, [f"{2 ** abs(tick):g}×" if tick else "equal" for tick in ticks])
    axes.axvspan(0, octaves, color=GREEN, linewidth=0, zorder=0)
    axes.axvline(0, color="black", linewidth=1)
    for place in places.values():
        axes.axhline(place, color="#e4e4e4", linewidth=0.5, zorder=0.5)
    axes.set_yticks(list(places.values()), [METRICS[name].label for name in places])
    for label in axes.get_yticklabels():
        label.set_fontweight(
            "bold" if label.get_text() == METRICS["flops_total"].label else "normal"
        )
    axes.set_ylim(max(places.values()) + 0.6, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
