"""Learning curves: validation chain exact match against steps and against seconds.

Per task a figure by step and one by seconds, panels by the size trained on and model, a line per
dimension and seed; and a table of the steps and seconds that each cell took to 90 %.  A circle ends
the line of a run that stopped early because it had solved its task.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from plots import style
from plots.aligned import KEYS
from plots.budgets import trained_size
from plots.cells import Grid, gather, records
from plots.curves import read_config, read_curve
from plots.labels import panels_of
from plots.layout import Layout
from plots.looks import dim_looks
from plots.paper import THRESHOLD
from plots.text import csv_text, slugs
from plots.untried import without_untried
from plots.words import footer, size_labels
from records.table import training_devices

NAME = "learning_curves"
SOLVED: dict[str, Any] = {"marker": "o", "markersize": 4.0, "markerfacecolor": "white"}
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
    whole = gather(table, plan, panels_of(experiment))
    # Of all that is planned, so that a dimension looks the same in every task's figure.
    looks = dim_looks(sorted(int(dim) for dim in whole.cells["dim"].unique()))
    grid = without_untried(whole)
    curves = {run.cell: read_curve(folder, run.cell) for run in records(grid.rows)}
    return {
        f"{NAME}{kind}_{slug}": _figure(grid, column, looks, curves, names, experiment, folder)
        for column, slug in slugs(grid.columns).items()
        for kind, names in AXES.items()
    }


def _figure(
    grid: Grid,
    column: str,
    looks: dict[int, dict[str, Any]],
    curves: dict[str, pd.DataFrame | None],
    names: tuple[str, str],
    experiment: Any,
    folder: Path,
) -> Figure:
    cells = grid.cells[grid.cells["column"] == column]
    models = [row for row in grid.model_rows if row in set(cells["row"])]
    runs = grid.runs(column)
    trained = [trained_size(run, folder) for run in runs.to_dict("records")]
    drawn = runs.assign(size=trained).drop_duplicates(["row", "size", "dim", "seed"])
    drawn = drawn[[curves[cell] is not None for cell in drawn["cell"]]]
    sizes = _panels(cells, trained)
    layout = Layout(
        list(sizes.values()),
        models,
        _legend(drawn, looks, folder),
        _footer(grid, column, runs, curves, experiment, timed=names[0] == "seconds"),
        x_label=names[1],
        y_label="validation sequences right throughout, percent",
    )
    for run in records(drawn):
        axes, curve = layout.axes(sizes[run.size], run.row), curves[run.cell]
        _draw_run(axes, run, curve, names[0], looks[run.dim])
    for axes in layout.panels.values():
        _finish(axes)
    return layout.figure


def _draw_run(axes: Axes, run: Any, curve: Any, over: str, look: dict[str, Any]) -> None:
    exact = 100 * curve["validation_chain_exact_match"]
    if _is_solved(run) and len(curve):
        # A wider ring round a wider line: all of several in one place are seen.
        ring = {"markersize": 2.5 + 1.6 * look["linewidth"], "markevery": [-1], "clip_on": False}
        look = look | SOLVED | ring
    axes.plot(curve[over], exact, gid=f"{run.dim}/{run.seed}", **look)


def _finish(axes: Axes) -> None:
    style.percent_axis(axes)
    axes.axhline(100 * THRESHOLD, **style.THRESHOLD_LINE)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    if not any(line.get_gid() for line in axes.lines):
        style.say_in(axes, "no curves")


def _is_solved(run: Any) -> bool:
    return getattr(run, "stopped", None) == "solved"


def _legend(drawn: pd.DataFrame, looks: dict[int, dict[str, Any]], folder: Path) -> list[Line2D]:
    """Return the handles of what is drawn: a line per dimension, and how runs that solve end."""
    dims = set(drawn["dim"])
    lines = [
        Line2D([], [], label=f"D = {dim}", **look) for dim, look in looks.items() if dim in dims
    ]
    solved = [run.cell for run in records(drawn) if _is_solved(run)]
    if solved:
        stated = {read_config(folder, cell).get("recipe", {}).get("stop_at") for cell in solved}
        share = stated.pop() if len(stated) == 1 else None
        at = f" at {100 * share:g} %" if isinstance(share, float) else ""
        look = {"color": style.GREY, "linestyle": "none", **SOLVED}
        lines.append(Line2D([], [], label=f"solved{at}: training ends early", **look))
    return lines


def _panels(cells: pd.DataFrame, trained: list[int]) -> dict[int, str]:
    """Return a label per size trained on, and per planned size of which nothing has run."""
    labels = size_labels(cells)
    waiting = cells.loc[cells["state"] == "not run", "size"]
    shown = sorted({*trained, *map(int, waiting)}, reverse=True)
    return {size: labels.get(size, f"n = {size}") for size in shown}


def _footer(
    grid: Grid, column: str, runs: pd.DataFrame, curves: dict, experiment: Any, timed: bool
) -> str:
    cells = grid.cells[grid.cells["column"] == column]
    line = f"{column}: validation sequences right in chain, labels and answer (dotted: 90 %). "
    line += _lines_per_seed(cells, runs)
    devices = sorted(set(training_devices(runs).dropna().map(str)))
    line += f" Seconds on {', '.join(devices)}." if timed and devices else ""
    lacking = sum(curves[cell] is None for cell in runs["cell"])
    waiting = int((cells["state"] == "not run").sum())
    line += f" {lacking} runs have no curve file." if lacking else ""
    line += f" {waiting} points, seeds together, were not run." if waiting else ""
    return footer([line], grid, experiment, column)


def _lines_per_seed(cells: pd.DataFrame, runs: pd.DataFrame) -> str:
    """Say how many seeds of a cell have run; cells of which none has are counted elsewhere."""
    planned = dict(zip(cells["point"], cells["seeds_planned"], strict=True))
    seeds = {point: part.nunique() for point, part in runs.groupby("point")["seed"]}
    low, high = min(seeds.values(), default=0), max(seeds.values(), default=0)
    fewer = any(count < planned[point] for point, count in seeds.items())
    asked = f" of {max(planned.values())} planned" if fewer else ""
    if high <= 1:
        return f"One seed{asked}." if high else "No seed has run."
    count = f"{high}" if low == high else f"{low} to {high}"
    return f"A line per seed, {count} seeds{asked}" + ("." if low == high else " for each cell.")
