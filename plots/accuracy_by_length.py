"""Accuracy against problem size: a panel per format and per group (or task), a line per model.

What a model reaches with a chain, without one and with labels stands side by side.  The dashed
line is what always giving the most frequent answer would reach; the dash-dotted one, in word
problems, the best guess from letter counts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator

from plots import style
from plots.cells import Grid, gather, records
from plots.curves import read_config
from plots.layout import Layout
from plots.looks import variant_looks
from plots.paper import THRESHOLD
from plots.unplanned import not_planned
from plots.untried import without_untried_values
from plots.words import footer, missing_text, seeds_text
from tasks.word import Word

NAME = "accuracy_by_length"
GROUP = "task.monoid"
THEORY = (
    "Theory: without a chain (direct, tagged) constant depth cannot answer A5 or S5 for every n "
    "unless TC⁰ = NC¹; solvable groups are not forbidden; with a chain each step is a look-up. "
    "Not learned is not the same as not expressible."
)
COUNTS: dict[str, Any] = {"color": style.GREY, "linewidth": 1.2, "linestyle": (0, (5, 1.5, 1, 1.5))}


def draw(table: pd.DataFrame, plan: pd.DataFrame, experiment: Any, out: Path) -> list[Path]:
    """Write ``accuracy_by_length`` as PDF and PNG."""
    return style.styled(style.save)(figure(table, plan, experiment, out.parent), out, NAME)


@style.styled
def figure(table: pd.DataFrame, plan: pd.DataFrame, experiment: Any, folder: Path) -> Figure:
    """Return the figure; axes carry gids ``panel/<group>/<format>``; ``folder`` has configs."""
    key = GROUP if GROUP in table or GROUP in plan else "task"
    facets = {"columns": ["format"], "rows": ["model"], "x": "size", "y": key}
    grid = gather(table, plan, facets)
    grid = without_untried_values(grid, label=grid.cells["row"], size=grid.cells["size"])
    looks = variant_looks(grid)
    guesses = _guesses_from_counts(grid, folder)
    groups = {style.setting_label(key, value): value for value in sorted(grid.cells["y"].unique())}
    layout = Layout(
        list(groups),
        grid.columns,
        _legend(looks, bool(guesses)),
        _footer(grid, experiment),
        x_label=style.axis_label("size"),
        y_label="answer accuracy in percent",
        # Tasks have sizes of their own, written under each row.
        share_x="all" if key == GROUP else "row",
        gap=(0.14, 0.14 if key == GROUP else 0.28),
    )
    for label, group in groups.items():
        whole = grid.cells if key == GROUP else grid.cells[grid.cells["y"] == group]
        for column in grid.columns:
            cells = grid.cells[(grid.cells["y"] == group) & (grid.cells["column"] == column)]
            axes = layout.axes(label, column)
            _draw_panel(axes, cells, looks)
            if guesses.get((group, column)):
                axes.plot(*zip(*sorted(guesses[group, column].items()), strict=True),
                          gid="counts", **COUNTS)  # fmt: skip
            axes.xaxis.set_major_locator(FixedLocator(sorted(whole["x"].unique())))
    return layout.figure


def _legend(looks: dict[str, dict[str, Any]], with_counts: bool) -> list[Line2D]:
    lines = [*looks.items(), ("90 %", style.THRESHOLD_LINE)]
    lines.append(("chance: always the most frequent answer", style.CHANCE_LINE))
    if with_counts:
        lines.append(("best guess from letter counts", COUNTS))
    return [Line2D([], [], label=label, **look) for label, look in lines]


def _guesses_from_counts(grid: Grid, folder: Path) -> dict[tuple[str, str], dict[int, float]]:
    """Return by panel (group, format) and size what letter counts are worth, in percent."""
    guesses: dict[tuple[str, str], dict[int, float]] = {}
    done = grid.rows[grid.rows["status"] == "done"][["point", "cell"]]
    labels = grid.cells[["point", "x", "y", "column"]]
    for run in records(done.merge(labels, on="point").drop_duplicates(["x", "y", "column"])):
        task = read_config(folder, run.cell).get("task", {})
        if task.get("name") != Word.name:
            continue
        own = {key: value for key, value in task.items() if key not in ("name", "_target_")}
        share = Word(**{**own, "size": run.x}).accuracy_from_counts()
        if share is not None:
            guesses.setdefault((run.y, run.column), {})[run.x] = 100 * share
    return guesses


def _draw_panel(axes: Axes, cells: pd.DataFrame, looks: dict[str, dict[str, Any]]) -> None:
    style.percent_axis(axes)
    axes.axhline(100 * THRESHOLD, **style.THRESHOLD_LINE)
    done = cells[cells["state"] == "done"].sort_values("x")
    if done.empty:
        style.say_in(axes, "no results")
        return
    chance = 100 * done.groupby("x")["chance_accuracy"].mean().dropna()
    axes.plot(chance.index, chance, gid="chance", **style.CHANCE_LINE)
    for row, look in looks.items():
        part = done[done["row"] == row]
        share = 100 * part["accuracy"]
        if (part["seeds"] > 1).any():
            spread = [share - 100 * part["accuracy_min"], 100 * part["accuracy_max"] - share]
            axes.errorbar(part["x"], share, spread, fmt="none", ecolor=look["color"], linewidth=0.6)
        axes.plot(part["x"], share, gid=f"cells/{row}", clip_on=False, **look)


def _footer(grid: Grid, experiment: Any) -> str:
    spread = " (bars: minimum–maximum)" if (grid.cells["seeds"] > 1).any() else ""
    parts = [f"Answer accuracy; tagged: of the last label. {_seeds(grid.cells)}{spread}."]
    parts += [missing_text(grid.cells), not_planned(grid, "n")]
    lines = [" ".join(filter(None, parts))]
    if grid.y_key == GROUP:
        lines.append(THEORY)
    return footer(lines, grid, experiment)


def _seeds(cells: pd.DataFrame) -> str:
    """Say how many seeds each size has, or how many there are at all where that differs."""
    counts = cells[cells["state"] == "done"].groupby("x")["seeds"].agg(["min", "max"])
    if len(counts) < 2 or (counts["min"] < counts["max"]).any() or counts["max"].nunique() == 1:
        return seeds_text(cells).capitalize()
    told = []
    for seeds, sizes in sorted(counts.groupby("max").groups.items(), reverse=True):
        word = "one seed" if seeds == 1 else f"mean of {seeds} seeds"
        told.append(f"{word} at n = {', '.join(map(str, sizes))}")
    return "; ".join(told).capitalize()
