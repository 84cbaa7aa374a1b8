"""How the embedding dimension that 90 % needs grows with the sequence length, beside Table 1.

Per task and model: the least measured D with an answer accuracy of at least 90 % against L, with
the interval in which the requirement lies, the fitted exponent with its 95 % interval, and lines of
the slopes that theory predicts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from plots import paper, style
from plots.cells import Grid, gather, records
from plots.fit import Growth, growth
from plots.frontier import Requirement, requirements
from plots.layout import Layout
from plots.looks import row_look
from plots.text import csv_text
from plots.words import footer, seeds_text

NAME = "required_dimension"
METHOD = (
    "Exponent b of D ~ L^b: interval-censored maximum likelihood (log-logistic), 95 % profile-"
    "likelihood interval."
)
_POWERS = {0.0: "constant", 0.25: "$L^{1/4}$", 0.5: r"$\sqrt{L}$"}


def draw(table: pd.DataFrame, plan: pd.DataFrame, experiment: Any, out: Path) -> list[Path]:
    """Write the figure, its points and its fits: ``required_dimension[_fit].csv``."""
    paths = style.styled(style.save)(figure(table, plan, experiment), out, NAME)
    grid = gather(table, plan)
    for name, frame in ((NAME, points(grid)), (f"{NAME}_fit", fits(grid))):
        paths.append(style.write_text(csv_text(frame), out / f"{name}.csv"))
    return paths


def points(grid: Grid) -> pd.DataFrame:
    """Return a row per task, model and size: the requirement lies in (``below``, ``dim``]."""
    rows = []
    for column in grid.columns:
        for row in grid.model_rows:
            panel = grid.panel(column, row)
            for item in requirements(panel):
                key = {"task": column, "model": row, "name": panel["model"].iloc[0]}
                key["task_name"] = panel["task"].iloc[0]
                rows.append(key | _point(item))
    return pd.DataFrame(rows)


def _point(item: Requirement) -> dict[str, Any]:
    return {
        "size": item.size,
        "max_len": item.max_len,
        "state": item.state,
        "below": float(item.below or np.nan),
        "dim": float(item.dim or np.nan),
    }


def fits(grid: Grid) -> pd.DataFrame:
    """Return a row per task and model: exponent, its interval and what theory says."""
    frame = points(grid)
    rows = []
    for (task, model), part in frame.groupby(["task", "model"], sort=False):
        known = part[part["state"] != "not run"].dropna(subset=["max_len"])
        found = growth(
            known["max_len"].to_numpy(),
            known["below"].fillna(0).to_numpy(),
            known["dim"].fillna(np.inf).to_numpy(),
        )
        first = part.iloc[0]
        rows.append({
            "task": task,
            "model": model,
            "exponent": found.exponent if found else np.nan,
            "low": found.low if found else np.nan,
            "high": found.high if found else np.nan,
            "sizes": len(known),
            "comment": "" if found else "too few points",
            "theory": theory_text(first["task_name"], first["name"]),
        })  # fmt: skip
    return pd.DataFrame(rows)


def theory_text(task: str, model: str) -> str:
    """Return the exponent of L that Table 1 predicts for D, empty where it says nothing."""
    exponents = paper.REQUIRED_DIM_EXPONENTS.get(task, {}).get(model, ())
    words = ["0" if e == 0 else f"at least {e:g}" for e in exponents]
    if len(words) == 2:  # ED, by the two ways to count its locality; see plots/paper.py
        return f"{words[0]} ({words[1]} by distance of states)"
    return words[0] if words else ""


@style.styled
def figure(table: pd.DataFrame, plan: pd.DataFrame, experiment: Any) -> Figure:
    """Return the figure: a panel per task, a line per model."""
    grid = gather(table, plan)
    frame, fitted = points(grid), fits(grid)
    models = grid.model_rows
    entries = [_entry(model, models, grid) for model in models]
    measured = "least D with ≥ 90 %; bar: down to the largest D without"
    entries += [
        Line2D([], [], linestyle="", marker="|", markersize=7, color="black", label=measured),
        Line2D([], [], linestyle="", marker=6, color="black", label="not reached: larger"),
        Line2D([], [], linestyle=(0, (1, 2)), color="#555555", label="slope that theory predicts"),
    ]
    layout = Layout(
        [""],
        grid.columns,
        entries,
        _footer(grid, fitted, experiment),
        widths=1.6,
        heights=1.9,
        x_label="longest sequence L",
        y_label="required embedding dimension D",
    )
    for column in grid.columns:
        axes = layout.axes("", column)
        for model in models:
            part = frame[(frame["task"] == column) & (frame["model"] == model)]
            _draw_model(axes, part, grid, model)
    _scale(layout, frame, grid)
    return layout.figure


def _entry(row: str, rows: list[str], grid: Grid) -> Line2D:
    return Line2D([], [], label=row, **row_look(row, grid))


def _draw_model(axes: Axes, part: pd.DataFrame, grid: Grid, row: str) -> None:
    look = row_look(row, grid)
    # Models with equal requirements would hide each other: shift them a little along log L.
    shift = 1.025 ** (grid.model_rows.index(row) - (len(grid.model_rows) - 1) / 2)
    part = part.dropna(subset=["max_len"])
    reached = part[part["state"] == "reached"]
    axes.plot(shift * reached["max_len"], reached["dim"], gid=f"reached/{row}", **look)
    for item in records(reached):
        low = item.below if item.below > 0 else item.dim / 1.35
        line = "-" if item.below > 0 else (0, (1, 1))
        (bar,) = axes.plot(
            [shift * item.max_len] * 2,
            [low, item.dim],
            color=look["color"],
            linewidth=0.9,
            linestyle=line,
            zorder=1.5,
        )
        bar.set_gid(f"interval/{row}/{item.size}")
    for item in records(part[part["state"].isin(["not reached", "incomplete"])]):
        if item.below > 0:
            ends = [item.below, item.below * 1.35]
            axes.plot(
                [shift * item.max_len] * 2,
                ends,
                color=look["color"],
                linewidth=0.9,
                marker=6,
                markevery=[1],
                gid=f"not reached/{row}/{item.size}",
            )
    _draw_theory(axes, part, row, look)


def _draw_theory(axes: Axes, part: pd.DataFrame, row: str, look: dict[str, Any]) -> None:
    known = part[part["state"] == "reached"].sort_values("max_len")
    if known.empty or part["max_len"].nunique() < 2:
        return
    first = known.iloc[0]
    # Theory gives slopes, not constants: each line starts where the first size was measured.
    lengths = np.array([part["max_len"].min(), part["max_len"].max()])
    for exponent in paper.REQUIRED_DIM_EXPONENTS.get(first["task_name"], {}).get(first["name"], ()):
        dims = first["dim"] * (lengths / first["max_len"]) ** exponent
        axes.plot(
            lengths,
            dims,
            color=look["color"],
            linestyle=(0, (1, 2)),
            linewidth=0.9,
            zorder=1,
            gid=f"theory/{row}/{exponent:g}",
        )
        axes.annotate(
            _POWERS[exponent],
            (lengths[1], dims[1]),
            xytext=(1.5, 1.5),
            textcoords="offset points",
            fontsize=5.5,
            parse_math=True,
            color=look["color"],
            ha="right",
        )


def _scale(layout: Layout, frame: pd.DataFrame, grid: Grid) -> None:
    dims = np.unique(grid.cells["dim"])
    for axes in layout.panels.values():
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_locator(FixedLocator([float(dim) for dim in dims]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set_ylim(dims[0] / 1.6, dims[-1] * 1.6)
    lengths = frame["max_len"].dropna()
    if len(lengths):
        axes.set_xlim(lengths.min() / 1.3, lengths.max() * 1.3)


def _footer(grid: Grid, fitted: pd.DataFrame, experiment: Any) -> str:
    lines = []
    for column in grid.columns:
        parts = []
        for item in records(fitted[fitted["task"] == column]):
            exponent = "too few points"
            if not item.comment:
                exponent = Growth(item.exponent, item.low, item.high, item.sizes).text()
            theory = f"; theory: {item.theory}" if item.theory else ""
            parts.append(f"{item.model} {exponent}{theory}")
        lines.append(f"{column}: " + " | ".join(parts) + ".")
    lines.append(f"{METHOD} {seeds_text(grid.cells).capitalize()}.")
    return footer(lines, grid, experiment)
