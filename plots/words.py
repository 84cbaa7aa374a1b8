"""What figures and tables say in words: labels, how many seeds and cells, budget and notes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from plots.cells import Grid
from plots.labels import usual
from plots.style import setting_label


def footer(lines: Sequence[str], grid: Grid, experiment: Any, column: str | None = None) -> str:
    """Return the text under a figure.

    What the experiment is and all its cells share, the figure's own ``lines``, the budget, what was
    set aside.  ``column`` is the only one that the figure draws.
    """
    about = [f"{experiment.description.strip().rstrip('.')}.", *shared_text(grid)]
    budget = [f"Budget: {experiment.budget.strip().rstrip('.')}."] if experiment.budget else []
    return "\n".join([" ".join(about), *lines, *budget, *notes_of(grid, column)])


def notes_of(grid: Grid, column: str | None = None) -> list[str]:
    """Return a sentence for each thing that was set aside, in all columns or in one."""
    if column is None:
        untried = [" ".join(filter(None, parts)) for parts in grid.untried]
    else:
        untried = [words for where, words in grid.untried if where in ("", column)]
    notes = [*grid.notes]
    if untried:
        notes.append(f"Not run yet, hence not drawn: {'; '.join(untried)}")
    return [f"Note: {note}." for note in notes]


def size_labels(cells: pd.DataFrame) -> dict[int, str]:
    """Return a label per problem size, largest first: n grows upward in every figure."""
    labels = {}
    for size in np.unique(cells["size"])[::-1]:
        length = cells.loc[cells["size"] == size, "max_len"].max()
        labels[int(size)] = f"n = {size}" + ("" if np.isnan(length) else f", L = {length:.0f}")
    return labels


def seeds_text(cells: pd.DataFrame) -> str:
    """Say how many seeds stand behind the numbers and which statistic is shown."""
    done = cells[cells["state"] == "done"]
    if done.empty:
        return "no results yet"
    low, high = done["seeds"].min(), done["seeds"].max()
    fewer = (done["seeds"] < done["seeds_planned"]).any()
    asked = f" of {done['seeds_planned'].max()} planned" if fewer else ""
    if high == 1:
        return f"one seed{asked} per cell"
    several = f"{high} seeds" if low == high else f"{low} to {high} seeds"
    return f"mean of {several}{asked}"


def setting_text(grid: Grid) -> str:
    """Say what the heatmap's numbers are: metric, test sequences, chance, seeds."""
    cells = grid.cells
    parts = ["Answer accuracy in percent, greedy generation"]
    if tests := _span(cells.loc[cells["state"] == "done", "n_test"]):
        parts.append(f"{tests} test sequences per cell")
    if chance := chance_text(cells):
        parts.append(chance)
    spread = " (maximum above, minimum below)" if (cells["seeds"] > 1).any() else ""
    parts.append(seeds_text(cells) + spread)
    return "; ".join(parts) + "."


def shared_text(grid: Grid) -> list[str]:
    """Say, as a sentence or none, which settings all cells share: layers, heads, D, recipe."""
    cells, parts = grid.cells, []
    for name in ("layers", "heads", "dim"):
        value = cells[name].unique()
        if len(value) == 1 and value[0] > 0 and name not in (grid.x_key, grid.y_key):
            parts.append(setting_label(name, int(value[0])))
    often = [setting_label(name, value) for name, value in usual(cells).items()]
    parts += [f"{words} unless a label says otherwise" for words in often]
    recipes = cells["recipe"].unique()
    if len(recipes) == 1 and recipes[0]:
        parts.append(f"recipe {setting_label('recipe', recipes[0])}")
    return [f"{'; '.join(parts)}."] if parts else []


def chance_text(cells: pd.DataFrame) -> str:
    """Name the accuracy of always giving the most frequent answer, per column where they differ."""
    spans = {}
    for column, part in cells.groupby("column", sort=False):
        values = 100 * part["chance_accuracy"].dropna()
        if len(values):
            low, high = f"{values.min():.1f}", f"{values.max():.1f}"
            spans[column] = f"{low} %" if low == high else f"{low} to {high} %"
    alike = len(set(spans.values())) == 1 and len(spans) == cells["column"].nunique()
    told = list(spans.values())[:1] if alike else [f"{name} {span}" for name, span in spans.items()]
    return f"chance (always the most frequent answer): {', '.join(told)}" if told else ""


def flops_unit(most: float) -> tuple[float, str]:
    """Return the unit, in FLOPs and by name, in which ``most`` FLOPs is a number of 1 to 1000."""
    units = ["FLOPs", "kFLOPs", "MFLOPs", "GFLOPs", "TFLOPs", "PFLOPs"]
    place = int(np.clip(np.floor(np.log10(max(most, 1.0)) / 3), 0, len(units) - 1))
    return 1000.0**place, units[place]


def _span(values: pd.Series) -> str:
    values = values.dropna()
    if values.empty:
        return ""
    low, high = values.min(), values.max()
    return f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"


def missing_text(cells: pd.DataFrame) -> str:
    """Say how many planned points lack a result, by state; empty when none does."""
    counts = [(state, int((cells["state"] == state).sum())) for state in
              ("failed", "unfinished", "not run")]  # fmt: skip
    told = [f"{count} {state}" for state, count in counts if count]
    of = f"of {len(cells)} points" + (
        ", seeds together" if cells["seeds_planned"].max() > 1 else ""
    )
    text = f"Without a result, so not shown: {', '.join(told)} ({of})."
    return text if told else ""
