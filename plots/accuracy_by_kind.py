"""Accuracy by kind of instance: a panel per format and per group (or task), a marker per model.

Beside the accuracy over all, that over each kind of instance shows what is guessed: of `closure`,
"yes if it ends in F" is right on all yes and on none whose gap is too long.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator

from plots import style
from plots.aligned import KEYS
from plots.cells import Grid, gather, records
from plots.curves import read_config, read_errors
from plots.layout import LINE, TICKS, Layout
from plots.looks import variant_looks
from plots.paper import THRESHOLD
from plots.text import csv_text
from plots.untried import without_untried_values
from plots.words import footer, missing_text, seeds_text
from tasks.closure import Closure
from tasks.monoids import monoid

NAME = "accuracy_by_kind"
GROUP = "task.monoid"
KINDS_OF_CLOSURE = (
    "Yes: the word can be cut into pieces of at most r letters whose products lie in the subgroup "
    "F. No: its product lies outside F, or lies in F but a piece would have to be longer than r."
)
BESIDE = 0.13  # between the markers of two models, in units of the distance between kinds


def draw(table: pd.DataFrame, plan: pd.DataFrame, experiment: Any, out: Path) -> list[Path]:
    """Write ``accuracy_by_kind`` as PDF, PNG and CSV; the records lie beside ``out``."""
    paths = style.styled(style.save)(figure(table, plan, experiment, out.parent), out, NAME)
    text = csv_text(kinds(table, plan, out.parent))
    return [*paths, style.write_text(text, out / f"{NAME}.csv")]


def kinds(table: pd.DataFrame, plan: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Return the cells' settings, kind, seeds, and the accuracy over ``n_test`` sequences of it.

    All seeds are pooled; cells without a record of kinds are left out.
    """
    grid = gather(table, plan)
    keys = [*KEYS, *(name for name in grid.rows if "." in str(name))]
    pooled = _pooled(grid, folder)
    settings = pd.DataFrame(pooled["point"].tolist(), columns=keys)
    return settings.join(pooled[["kind", "seeds", "n_test", "accuracy"]])


def _pooled(grid: Grid, folder: Path) -> pd.DataFrame:
    found = []
    for run in records(grid.rows[grid.rows["status"] == "done"][["point", "cell"]]):
        record = read_errors(folder, run.cell) or {}
        for kind, (right, count) in record.get("by_kind", {}).items():
            found.append((run.point, kind, right, count, right / count if count else np.nan))
    frame = pd.DataFrame(found, columns=["point", "kind", "right", "n_test", "share"])
    pooled = frame.groupby(["point", "kind"], sort=True).agg(
        seeds=("right", "size"), right=("right", "sum"), n_test=("n_test", "sum"),
        accuracy_min=("share", "min"), accuracy_max=("share", "max"),
    )  # fmt: skip
    return pooled.assign(accuracy=pooled.pop("right") / pooled["n_test"]).reset_index()


@style.styled
def figure(table: pd.DataFrame, plan: pd.DataFrame, experiment: Any, folder: Path) -> Figure:
    """Return the figure; axes carry gids ``panel/<group>/<format>``; ``folder`` has ``errors/``."""
    key = GROUP if GROUP in table or GROUP in plan else "task"
    facets = {"columns": ["format"], "rows": ["model"], "x": "dim", "y": key}
    grid = gather(table, plan, facets)
    grid = without_untried_values(grid, label=grid.cells["row"])
    points = _points(grid, folder)
    points["kind"] = points["kind"].map(lambda kind: textwrap.fill(kind, 10))
    names = ["all", *sorted(set(points["kind"]) - {"all"}, key=lambda kind: (kind != "yes", kind))]
    looks = {row: look | {"linestyle": "none"} for row, look in variant_looks(grid).items()}
    entries = [Line2D([], [], label=row, **look) for row, look in looks.items()]
    entries.append(Line2D([], [], label="90 %", **style.THRESHOLD_LINE))
    entries.append(
        Line2D([], [], label="chance: always the most frequent answer", **style.CHANCE_LINE)
    )
    groups = {style.setting_label(key, value): value for value in sorted(grid.cells["y"].unique())}
    layout = Layout(
        list(groups),
        grid.columns,
        entries,
        _footer(grid, experiment, folder),
        y_label="answer accuracy in percent",
        share_x="all",
        below=TICKS + LINE * max(name.count("\n") for name in names),
    )
    for label, group in groups.items():
        for column in grid.columns:
            here = points[(points["y"] == group) & (points["column"] == column)]
            axes = layout.axes(label, column)
            _draw_panel(axes, here, names, looks)
            planned = grid.cells[(grid.cells["y"] == group) & (grid.cells["column"] == column)]
            _say_not_planned(axes, [row for row in looks if row not in set(planned["row"])])
            if len(here):
                chance = [100 * here["chance_accuracy"].mean()] * 2
                axes.plot([-0.4, 0.4], chance, gid="chance", **style.CHANCE_LINE)
    return layout.figure


def _points(grid: Grid, folder: Path) -> pd.DataFrame:
    """Return a row per finished cell and kind, all of them together being a kind too."""
    done = grid.cells[grid.cells["state"] == "done"]
    labels = done[["point", "column", "row", "y", "chance_accuracy"]]
    measures = ["accuracy", "accuracy_min", "accuracy_max"]
    of_kinds = labels.merge(_pooled(grid, folder)[["point", "kind", *measures]], on="point")
    return pd.concat([labels.assign(kind="all").join(done[measures]), of_kinds])


def _draw_panel(
    axes: Axes, points: pd.DataFrame, names: list[str], looks: dict[str, dict[str, Any]]
) -> None:
    style.percent_axis(axes)
    axes.axhline(100 * THRESHOLD, **style.THRESHOLD_LINE)
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.xaxis.set_major_locator(FixedLocator(range(len(names))))
    axes.xaxis.set_major_formatter(FixedFormatter(names))
    if points.empty:
        style.say_in(axes, "no results")
    width = BESIDE * (len(looks) - 1)
    for (row, look), offset in zip(
        looks.items(), np.linspace(-width / 2, width / 2, len(looks)), strict=True
    ):
        part = points[points["row"] == row]
        places = [names.index(kind) + offset for kind in part["kind"]]
        ends = 100 * part[["accuracy_min", "accuracy_max"]]
        axes.vlines(places, ends["accuracy_min"], ends["accuracy_max"], color=look["color"],
                    linewidth=1.0, zorder=3, gid=f"range/{row}")  # fmt: skip
        axes.plot(places, 100 * part["accuracy"], gid=f"cells/{row}", clip_on=False, **look)


def _say_not_planned(axes: Axes, rows: list[str]) -> None:
    """Name the models that the panel lacks by design, at its foot."""
    if rows:
        axes.text(0.01, 0.07, f"not planned: {', '.join(rows)}", transform=axes.transAxes,
                  color=style.GREY, fontsize=style.SMALL, gid="not planned")  # fmt: skip


def _footer(grid: Grid, experiment: Any, folder: Path) -> str:
    spread = " (bars: minimum–maximum)" if (grid.cells["seeds"] > 1).any() else ""
    lines = [
        f"Answer accuracy over all test sequences and over each kind of them{_sizes(grid.cells)}; "
        f"{seeds_text(grid.cells)}{spread}, over a kind the sequences of all seeds. "
        f"{missing_text(grid.cells)}"
    ]
    if (grid.cells["task"] == Closure.name).any():
        lines.append(f"{KINDS_OF_CLOSURE}{_subgroups(grid, folder)}")
    return footer(lines, grid, experiment)


def _sizes(cells: pd.DataFrame) -> str:
    """Return e.g. ``, n = 16 and D = 64``, of what does not vary."""
    told = [style.setting_label(name, cells[name].iloc[0]) for name in ("size", "dim")
            if cells[name].nunique() == 1]  # fmt: skip
    return f", {' and '.join(told)}" if told else ""


def _subgroups(grid: Grid, folder: Path) -> str:
    """Say what F and r are, where the configurations leave both to the task or agree."""
    tasks = [read_config(folder, cell).get("task", {}) for cell in grid.rows["cell"]]
    tasks = [task for task in tasks if task.get("name") == Closure.name]
    if not tasks or any(task.get("subset") is not None for task in tasks):
        return ""
    names = sorted({str(task["monoid"]) for task in tasks})
    indices = {len(monoid(name)) // len(monoid(name).subgroup) for name in names}
    lengths = {task.get("r") or 2 * max(indices) for task in tasks}
    if len(indices) > 1 or len(lengths) > 1:
        return ""
    of = ", ".join(f"of {name} {_subgroup(name)}" for name in names)
    return f" F has index {indices.pop()}: {of}. r = {lengths.pop()}."


def _subgroup(name: str) -> str:
    """Return in words what `tasks.monoids` chose as F."""
    if "x" in name:
        return f"the whole of {name.partition('x')[0]}"
    if name.startswith("Z"):
        return "the identity alone" if len(monoid(name).subgroup) == 1 else "the multiples of 5"
    return "the elements that fix point 1"
