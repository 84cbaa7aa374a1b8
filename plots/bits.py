"""Bits of generation state: needed by counting, enough for 90 %, and held in float32.

Needed: log2 of the number of distinct correct continuations after the prompt. Enough: the size of
the state, all its numbers rounded after every token to the shortest format (float or integer) at
which the median seed answers 90 %; no dot if none does. Held: its size in float32. D in a title:
shared, or one per model from top to bottom.
"""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from common import UserError
from evaluation.state_format import parse_format
from experiments.config import measured_settings
from experiments.d90 import finished, passes
from plots import data, style
from tasks.task import build_task

COLOR = style.model_look("standard").color
KEYS = ["task", "column", "size", "model", "row", "dim"]
MAX_PANELS = 6


def bits(table: pd.DataFrame, records: data.Records) -> pd.DataFrame:
    """A row per task, size, model and D: bits `needed_low` to `needed_high` by counting
    (`Task.state_bits`), `enough` for 90 % with numbers in the `shortest` format at which the seeds'
    median is 90 % (nan without one), and `held` in float32."""
    rows = finished(table)
    if data.WEIGHT_FORMAT in rows:
        rows = rows[rows[data.WEIGHT_FORMAT].isna()]
    found = []
    rows = data.labelled(rows, apart=[data.STATE_FORMAT, data.WEIGHT_FORMAT])
    for place, part in rows.groupby(KEYS, sort=False):
        fewest, name = shortest(part, data.STATE_FORMAT)
        config = records[part["cell"].iloc[0]]["config"]
        task = build_task(
            measured_settings(config["task"], config.get("measure", {}).get("task", {}))
        )
        low, high = np.broadcast_to(task.state_bits(), 2)
        numbers = part["state_bytes"].iloc[0] / 4
        found.append(
            {**dict(zip(KEYS, place, strict=True)), "needed_low": low, "needed_high": high,
             "enough": numbers * fewest, "held": numbers * 32, "shortest": name}
        )  # fmt: skip
    return data.in_order(pd.DataFrame(found))


def shortest(rows: pd.DataFrame, key: str) -> tuple[float, str]:
    """The bits and the name of the shortest format of `key` at which the median is 90 %, or nan and
    ""; a missing format is float32."""
    medians = rows.fillna({key: "float32"}).groupby(key)["answer_accuracy"].median()
    good = [(parse_format(name).bits, name) for name in medians.index[medians.map(passes)]]
    return min(good, default=(np.nan, ""))


def weights(table: pd.DataFrame) -> pd.DataFrame:
    """The fewest bits per weight, float or integer, at which the median of the seeds answers 90 %,
    and the weights' size then and in float32. The state is not rounded."""
    rows = finished(table)
    if data.STATE_FORMAT in rows:
        rows = rows[rows[data.STATE_FORMAT].isna()]
    found = []
    places = ["column", "row", "size", "dim"]
    for _, part in data.labelled(rows, apart=[data.WEIGHT_FORMAT]).groupby(places, sort=False):
        if part[data.WEIGHT_FORMAT].notna().any():
            fewest, name = shortest(part, data.WEIGHT_FORMAT)
            params, first = part["params"].iloc[0] / 8192, part.iloc[0]
            found.append(
                {"task": first["column"], "n": first["size"], "model": first["row"],
                 "D": first["dim"], "bits": fewest, "format": name, "KiB": params * fewest,
                 "KiB in float32": params * 32}
            )  # fmt: skip
    return pd.DataFrame(found)


@style.styled
def draw(table: pd.DataFrame, records: data.Records, *, width: float, **_: Any) -> Figure:
    """A panel per task and size; UserError if no format was measured, or for too many panels."""
    if data.STATE_FORMAT not in table or not records:
        raise UserError("no state_format was measured")
    found = bits(table, records)
    panels = [part for _, part in found.groupby(KEYS[:3], sort=False)]
    if len(panels) > MAX_PANELS:
        raise UserError(f"{len(panels)} tasks and sizes; the figure has room for {MAX_PANELS}")
    if len(panels) == 1:
        panels = [found.sort_values(["enough", "held"], kind="stable")]
    figure = style.new_figure(width, 0.75 + 0.24 * max(3, *map(len, panels)))
    grid = figure.subplots(1, len(panels), sharex=True, squeeze=False)[0]
    shown: list[str] = []
    for axes, part in zip(grid, panels, strict=True):
        heights = np.arange(len(part))
        axes.axvspan(part["needed_low"].min(), part["needed_high"].max(), color="black", lw=1.5)
        axes.hlines(heights, part["needed_high"], part["held"], color="#d0d0d0", lw=1, zorder=0.5)
        axes.plot(part["enough"], heights, "o", color=COLOR, markersize=6)
        axes.plot(part["held"], heights, "o", color=COLOR, markerfacecolor="white", markersize=6)
        labels = part["row"].tolist()
        axes.set_yticks(heights, labels if labels != shown else [""] * len(labels))
        shown = labels
        axes.set_ylim(len(part) - 0.5, -0.5)
        first = part.iloc[0]
        size = style.size_in_words(first["task"], int(first["size"]))
        dims = part["dim"].unique() if part["dim"].nunique() == 1 else part["dim"]
        axes.set_title(f"{first['column']}, {size}\nD = {', '.join(map(str, dims))}")
        axes.set_xscale("log")
        axes.set_xlim(max(1, found["needed_low"].min() / 2), 2 * found["held"].max())
        axes.set_xlabel("bits of state")
    dot = {"marker": "o", "linestyle": "none", "color": COLOR}
    style.legend_below(
        figure,
        {
            "needed, by counting": {"color": "black", "linewidth": 1.5},
            "enough for 90 %": dot,
            "held in float32": {"markerfacecolor": "white", **dot},
        },
    )
    return figure
