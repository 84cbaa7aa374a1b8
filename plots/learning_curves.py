"""Learning curves: validation chain exact match against steps and against seconds.

Per task a figure by step and one by seconds, panels by the size trained on and model, a line per
dimension and seed; and a table of the steps and seconds that each cell took to 90 %.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from plots import style
from plots.aligned import KEYS
from plots.budgets import trained_size
from plots.cells import Grid, gather, records
from plots.curves import read_curve
from plots.labels import panels_of
from plots.layout import Layout
from plots.looks import dim_looks
from plots.paper import THRESHOLD
from plots.text import csv_text, slugs
from plots.untried import without_untried
from plots.words import footer, size_labels

NAME = "learning_curves"
AXES = {"": ("step", "training step"), "_seconds": ("seconds", "training time in seconds")}


def draw(table: pd.DataFrame, plan: pd.DataFrame, experiment: Any, out: Path) -> list[Path]:
    """Write ``learning_curves[_seconds]_<task>`` and ``time_to_90.csv``; curves lie beside out."""
    drawn = figures(table, plan, experiment, out.parent)
    save = style.styled(style.save)
    paths = [path for name, item in drawn.items() for path in save(item, out, name)]
    text = csv_text(time_to_90(table, plan, out.parent))
    return [*paths, style.write_text(text, out / "time_to_90.csv")]


def time_to_90(table: pd.DataFrame, plan: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Return steps and seconds to 90 % validation chain exact match, a row per cell and seed.

    Empty where it was not reached or no curve exists; ``best_validation`` tells these apart.
    """
    grid, rows = gather(table, plan), []
    others = [name for name in grid.rows if "." in str(name)]
    for run in grid.rows.to_dict("records"):
        curve = read_curve(folder, run["cell"])
        row = {name: run[name] for name in [*KEYS, *others, "seed", "cell", "status"]}
        row |= {"steps_to_90": np.nan, "seconds_to_90": np.nan, "best_validation": np.nan}
        if curve is not None and len(curve):
            exact = curve["validation_chain_exact_match"]
            row["best_validation"] = exact.max()
            if len(reached := curve[exact >= THRESHOLD]):
                row["steps_to_90"] = int(reached["step"].iloc[0])
                row["seconds_to_90"] = reached["seconds"].iloc[0]
        rows.append(row)
    frame = pd.DataFrame(rows)
    frame["steps_to_90"] = frame["steps_to_90"].astype("Int64")
    return frame


@style.styled
def figures(
    table: pd.DataFrame, plan: pd.DataFrame, experiment: Any, folder: Path
) -> dict[str, Figure]:
    """Return the figures under their files' names; ``folder`` holds ``curves/``."""
    grid = without_untried(gather(table, plan, panels_of(experiment)))
    curves = {run.cell: read_curve(folder, run.cell) for run in records(grid.rows)}
    return {
        f"{NAME}{kind}_{slug}": _figure(grid, column, curves, names, experiment, folder)
        for column, slug in slugs(grid.columns).items()
        for kind, names in AXES.items()
    }


def _figure(
    grid: Grid,
    column: str,
    curves: dict[str, pd.DataFrame | None],
    names: tuple[str, str],
    experiment: Any,
    folder: Path,
) -> Figure:
    cells = grid.cells[grid.cells["column"] == column]
    models = [row for row in grid.model_rows if row in set(cells["row"])]
    looks = dim_looks(sorted(int(dim) for dim in cells["dim"].unique()))
    entries = [Line2D([], [], label=f"D = {dim}", **look) for dim, look in looks.items()]
    runs = grid.runs(column)
    trained = [trained_size(run, folder) for run in runs.to_dict("records")]
    drawn = runs.assign(size=trained).drop_duplicates(["row", "size", "dim", "seed"])
    sizes = _panels(cells, trained)
    layout = Layout(
        list(sizes.values()),
        models,
        entries,
        _footer(grid, column, runs, curves, experiment),
        x_label=names[1],
        y_label="validation sequences right throughout, percent",
    )
    for run in records(drawn):
        curve = curves[run.cell]
        if curve is not None:
            axes = layout.axes(sizes[run.size], run.row)
            exact = 100 * curve["validation_chain_exact_match"]
            axes.plot(curve[names[0]], exact, gid=f"{run.dim}/{run.seed}", **looks[run.dim])
    for axes in layout.panels.values():
        style.percent_axis(axes)
        axes.axhline(100 * THRESHOLD, **style.THRESHOLD_LINE)
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(4))
        if not any(line.get_gid() for line in axes.lines):
            style.say_in(axes, "no curves")
    return layout.figure


def _panels(cells: pd.DataFrame, trained: list[int]) -> dict[int, str]:
    """Return a label per size trained on, and per planned size of which nothing has run."""
    labels = size_labels(cells)
    waiting = cells.loc[cells["state"] == "not run", "size"]
    shown = sorted({*trained, *map(int, waiting)}, reverse=True)
    return {size: labels.get(size, f"n = {size}") for size in shown}


def _footer(grid: Grid, column: str, runs: pd.DataFrame, curves: dict, experiment: Any) -> str:
    cells = grid.cells[grid.cells["column"] == column]
    lines = [f"{column}: validation sequences right in chain, labels and answer (dotted: 90 %). "]
    seeds = runs["seed"].nunique()
    planned = int(cells["seeds_planned"].max())
    asked = f" of {planned} planned" if seeds < planned else ""
    lines[0] += f"One seed{asked}." if seeds == 1 else f"A line per seed, {seeds} seeds{asked}."
    lacking = sum(curves[cell] is None for cell in runs["cell"])
    waiting = int((cells["state"] == "not run").sum())
    lines[0] += f" {lacking} runs have no curve file." if lacking else ""
    lines[0] += f" {waiting} points, seeds together, were not run." if waiting else ""
    return footer(lines, grid, experiment, column)
