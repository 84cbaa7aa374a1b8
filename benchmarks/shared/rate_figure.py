"""The figure of `python -m benchmarks rates`: steps to 99 % against the rate, a curve a width."""

from __future__ import annotations

import functools
import itertools
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator

from benchmarks.shared.cells import BASKET, MODELS
from common import write_atomically
from plots.style import MODELS as MODEL_NAMES
from plots.style import TASKS as TASK_NAMES

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")  # Okabe and Ito
RING: dict[str, Any] = {"marker": "o", "markersize": 13, "mfc": "none", "ls": ""}
Row = dict[str, Any]


def draw(rows: Sequence[Row], path: Path, sizes: Mapping[str, int]) -> None:
    """Draw a panel per task and model; a point a run, a line through the medians.

    Censored runs are hollow triangles at the steps they reached; a line through one is dashed.
    Within the shaded band a rate is at most a factor of 2 away from the recipe's; a best median
    outside it has a ring.  ``sizes`` has the problem size of each task.
    """
    dims = sorted({row["dim"] for row in rows})
    figure = Figure(figsize=(9, 8), layout="constrained")
    axes = figure.subplots(len(BASKET), len(MODELS), sharex=True, sharey=True, squeeze=False)
    for across, task in zip(axes, BASKET, strict=True):
        for axis, model in zip(across, MODELS, strict=True):
            size = f", n = {sizes[task]}" if task in sizes else ""
            title = f"{TASK_NAMES[task]}{size}, {MODEL_NAMES[model]}"
            axis.set_title(title, fontsize=9)
            axis.axvspan(0.5, 2.0, color="#eeeeee", zorder=0)
            for dim, colour in zip(dims, COLOURS, strict=False):
                chosen = (task, model, dim)
                own = [r for r in rows if (r["task"], r["model"], r["dim"]) == chosen]
                draw_width(axis, own, colour)
    factors = sorted({row["factor"] for row in rows})
    axes[0, 0].set(xscale="log", yscale="log")
    axes[0, 0].set_xticks(factors, [f"{factor:g}" for factor in factors], minor=False)
    axes[0, 0].minorticks_off()
    axes[0, 0].yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes[0, 0].yaxis.set_major_formatter("{x:g}")
    figure.supxlabel("peak learning rate over that of the recipe at this width")
    figure.supylabel("steps until 99 % of the validation chains are right")
    handles = [
        Line2D([], [], color=colour, marker="o", label=f"D = {dim}")
        for dim, colour in zip(dims, COLOURS, strict=False)
    ]
    stopped: dict[str, Any] = {
        "marker": "^",
        "mfc": "none",
        "ls": "--",
        "label": "stopped before 99 %",
    }
    handles.append(Line2D([], [], color="black", **stopped))
    ring: dict[str, Any] = {"label": "best, further than a factor of 2", **RING}
    handles.append(Line2D([], [], color="black", **ring))
    seeds = len({row["seed"] for row in rows})
    told = "one seed" if seeds == 1 else f"medians of up to {seeds} seeds, a point a run"
    figure.legend(
        handles=handles, loc="outside upper center", ncols=len(handles), frameon=False,
        title=told, fontsize=9,
    )  # fmt: skip
    write_atomically(path, functools.partial(figure.savefig, dpi=150, format="png"))


def draw_width(axis: Axes, rows: Sequence[Row], colour: str) -> None:
    """Draw the runs of one width and the medians between them."""
    for row in rows:
        marker, face = ("o", colour) if row["solved"] else ("^", "none")
        axis.plot(row["factor"], row["steps"], marker, color=colour, mfc=face, alpha=0.6)
    factors = sorted({row["factor"] for row in rows})
    medians = [(f, median_steps([row for row in rows if row["factor"] == f])) for f in factors]
    points = [(factor, *median) for factor, median in medians if median]
    for (x0, y0, whole0), (x1, y1, whole1) in itertools.pairwise(points):
        axis.plot([x0, x1], [y0, y1], "-" if whole0 and whole1 else "--", color=colour)
    best = best_factor(dict(medians))
    if best is not None and not 0.5 <= best <= 2.0:
        axis.plot(best, dict(medians)[best][0], color=colour, gid="far", **RING)


def median_steps(rows: Sequence[Row]) -> tuple[float, bool] | None:
    """Return the median steps of several seeds, and whether that is what it took; None of none.

    A censored run counts as longer than any that was not.
    """
    if not rows:
        return None
    ordered = sorted(rows, key=lambda row: (not row["solved"], row["steps"]))
    middle = ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1]
    return statistics.fmean(row["steps"] for row in middle), all(row["solved"] for row in middle)


def best_factor(medians: dict[float, tuple[float, bool] | None]) -> float | None:
    """Return the factor of the fewest steps among medians that are no bounds; None without one."""
    solved = {factor: found[0] for factor, found in medians.items() if found and found[1]}
    return min(solved, key=solved.__getitem__) if solved else None
