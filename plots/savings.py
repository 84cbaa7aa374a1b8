"""How many times cheaper than standard attention each model is, in every currency.

A panel per task and currency: the cost of standard attention at its least D for 90 %, divided by
that of each other model at its own, against the longest sequence L.  Above 1 the model saves.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from plots import limits, savings_summary, style, tabular
from plots.answers import read_answers, timing_note
from plots.budgets import UNKNOWN, YES, of_grid, sentences
from plots.cells import Grid, gather, records
from plots.cost_rows import rows as cost_rows
from plots.growth_text import evidence, requirements
from plots.layout import Layout
from plots.looks import row_look
from plots.savings_rows import rows
from plots.savings_text import BASELINE, reached
from plots.text import csv_text
from plots.words import footer

NAME = "savings"
ROOM = 1.25  # times the shortest and longest L: where a panel ends
LABEL_WIDTH = 0.22  # inches that the label of a length needs
TITLES = {
    "flops_linear_layers": "linear-layer FLOPs",
    "flops_total": "total FLOPs",
    "state_bytes": "bytes of state",
    "answer_seconds": "time per answer",
    "tokens_per_second": "time per token in batches",
    "training_flops": "training FLOPs",
    "training_seconds": "training core-seconds",
}
METHOD = (
    "Cost of standard attention at its least D for 90 % over that of the model at its own: above "
    "1, in the shaded half, the model saves. FLOPs: of one forward pass over L tokens; training "
    "until 90 % of the validation chains are right; state: float32, one sequence of L tokens. "
    "Bars of FLOPs of a forward pass and of state: were each least D anywhere above the largest D "
    "that fails; of answers: the turns in which they were timed. No point: one of the two was not "
    "measured, or its upper median seed never gets there."
)
FROM_ABOVE = {
    YES: "a least D of the two is known from above only (budget, or no smaller one measured)",
    UNKNOWN: "the same, if the budget limits it (not known)",
}
SEVERAL = "Standard attention is there in several forms: that of least linear-layer FLOPs counts."


def draw(table: pd.DataFrame, plan: pd.DataFrame, experiment: Any, out: Path) -> list[Path]:
    """Write ``savings`` as PDF, PNG and CSV, and the counts of its points, ``savings_summary.*``.

    ``answers.json`` lies beside ``out``.
    """
    grid = gather(table, plan)
    answers = read_answers(out.parent)
    budgets = of_grid(grid, out.parent)
    costs = cost_rows(grid, budgets, answers)
    ratios = rows(costs, grid)
    lines = [METHOD, timing_note(answers, experiment.name), *sentences(budgets)]
    if (reached(costs[costs["name"] == BASELINE]).groupby("group").size() > 1).any():
        lines.append(SEVERAL)
    lines += _held_alike(costs)
    lines.append(evidence([item for *_, item in requirements(grid)], grid))
    picture = figure(ratios, grid, footer(lines, grid, experiment))
    paths = style.styled(style.save)(picture, out, NAME)
    paths.append(style.write_text(csv_text(ratios), out / f"{NAME}.csv"))
    summary = savings_summary.rows(ratios)
    if summary.empty:
        return paths
    texts = savings_summary.printed_table(summary, experiment).texts(summary)
    return [*paths, *tabular.write(texts, out, savings_summary.NAME)]


def _held_alike(costs: pd.DataFrame) -> list[str]:
    """Say which settings vary in which a model and what it is held against are alike."""
    within = costs.groupby("group")
    alike = [
        key
        for key in ("layers", "heads", "recipe")
        if costs[key].nunique() > 1 and within[key].nunique().max() == 1
    ]
    words = " and ".join(alike)
    return [f"Each model is held against standard attention of the same {words}."] if alike else []


@style.styled
def figure(ratios: pd.DataFrame, grid: Grid, text: str) -> Figure:
    """Return the figure: a row per task, a column per currency, a line per model."""
    ratios = _closed(ratios[ratios["max_len"].notna()])
    models = [row for row in grid.model_rows if (ratios["model"] == row).any()]
    tasks = [column for column in grid.columns if (ratios["task"] == column).any()]
    shown = [name for name in TITLES if (ratios["currency"] == name).any()]
    layout = Layout(
        tasks or grid.columns,
        [TITLES[name] for name in shown] or [TITLES["flops_total"]],
        _entries(models, grid, ratios),
        text,
        widths=0.7,
        heights=0.95,
        gap=(0.1, 0.14),
        x_label="longest sequence L",
        y_label="cost of standard ÷ cost of the model",
    )
    _scale(layout, ratios)
    for axes in layout.panels.values():
        axes.axhspan(1.0, axes.get_ylim()[1], color="#f3f3f3", linewidth=0, zorder=0)
        axes.axhline(1.0, color=style.GREY, linewidth=0.8, zorder=1)
        if not shown:
            style.say_in(axes, "no pair")
    for task in tasks:
        for name in shown:
            here = ratios[(ratios["task"] == task) & (ratios["currency"] == name)]
            axes = layout.axes(task, TITLES[name])
            _draw_panel(axes, here, models, grid)
    return layout.figure


def _entries(models: Sequence[str], grid: Grid, ratios: pd.DataFrame) -> list[Line2D]:
    entries = [Line2D([], [], label=row, **row_look(row, grid)) for row in models]
    return [*entries, *limits.entries(set(ratios["bound"]), words=FROM_ABOVE)]


def _draw_panel(axes: Axes, here: pd.DataFrame, models: Sequence[str], grid: Grid) -> None:
    if here.empty:
        style.say_in(axes, "not measured")
    for row in models:
        part = here[here["model"] == row].sort_values("max_len")
        look = row_look(row, grid)
        axes.plot(part["max_len"], part["saved"], gid=f"saved/{row}", **look)
        for item in records(part):
            span: dict[str, Any] = {"linewidth": 0.8, "gid": f"bar/{row}/{item.size}"}
            axes.plot([item.max_len] * 2, [item.low, item.high], color=look["color"], **span)
            limits.mark(axes, item.max_len, item.saved, item.bound, look, f"{row}/{item.size}")


def _closed(ratios: pd.DataFrame) -> pd.DataFrame:
    """End each bar at its point on the side on which nothing bounds it."""
    return ratios.assign(
        low=ratios["low"].fillna(ratios["saved"]), high=ratios["high"].fillna(ratios["saved"])
    )


def _scale(layout: Layout, ratios: pd.DataFrame) -> None:
    """Give all panels one logarithmic scale, of at least half to twice as much."""
    low, high = 0.5, 2.0
    if len(ratios):
        low, high = min(low, ratios["low"].min()), max(high, ratios["high"].max())
    first = next(iter(layout.panels.values()))
    step = 4.0 if high > 16 * low else 2.0
    lengths = ratios["max_len"].astype(float)
    ticks = _ticks(lengths, min(layout.widths))
    for axes in layout.panels.values():
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_locator(FixedLocator([step**power for power in range(-20, 21)]))
        axes.yaxis.set_major_formatter(FuncFormatter(_times))
        axes.xaxis.set_major_locator(FixedLocator(ticks))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_minor_locator(NullLocator())
    first.set_ylim(low / 1.5, high * 1.5)
    if len(lengths):
        first.set_xlim(lengths.min() / ROOM, lengths.max() * ROOM)


def _ticks(lengths: pd.Series, width: float) -> list[float]:
    """Return powers of two, or of four, …, whose labels do not touch on ``width`` inches.

    Where none lies within the panel it is the longest length alone.
    """
    if lengths.empty:
        return []
    low, high = np.log2([lengths.min() / ROOM, lengths.max() * ROOM])
    step = int(np.ceil(LABEL_WIDTH / width * (high - low)))
    powers = [power for power in range(0, 64, step) if low <= power <= high]
    return [2.0**power for power in powers] or [float(lengths.max())]


def _times(value: float, _: Any) -> str:
    return f"{value:.0f}" if value >= 1 else f"1/{1 / value:.0f}"
