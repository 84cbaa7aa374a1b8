"""What figures and tables say in words: labels, how many seeds and cells, budget and notes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from plots.cells import Grid


def footer(lines: Sequence[str], grid: Grid, experiment: Any) -> str:
    """Return the text under a figure: its own ``lines``, the budget, what was set aside."""
    budget = [f"Budget: {experiment.budget.strip()}"] if experiment.budget else []
    return "\n".join([*lines, *budget, *notes_of(grid)])


def notes_of(grid: Grid) -> list[str]:
    """Return a sentence for each thing that was set aside."""
    return [f"Note: {note}." for note in grid.notes]


def size_labels(cells: pd.DataFrame) -> dict[int, str]:
    """Return a label per problem size, largest last."""
    labels = {}
    for size in np.unique(cells["size"]):
        length = cells.loc[cells["size"] == size, "max_len"].max()
        labels[int(size)] = f"n = {size}" + ("" if np.isnan(length) else f", L = {length:.0f}")
    return labels


def seeds_text(cells: pd.DataFrame) -> str:
    """Say how many seeds stand behind the numbers and which statistic is shown."""
    counts = sorted(set(cells.loc[cells["state"] == "done", "seeds"]))
    if not counts:
        return "no results yet"
    if counts == [1]:
        return "one seed per cell"
    several = f"{counts[0]} seeds" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"
    return f"mean of {several}"


def setting_text(grid: Grid) -> str:
    """Say what the heatmap's cells share: metric, test sequences, layers, heads, recipe, seeds."""
    cells = grid.cells
    parts = ["Answer accuracy in percent, greedy generation"]
    if tests := _span(cells.loc[cells["state"] == "done", "n_test"]):
        parts.append(f"{tests} test sequences per cell")
    for name in ("layers", "heads"):
        value = cells[name].unique()
        if len(value) == 1 and value[0] > 0:
            parts.append(f"{value[0]:.0f} {name if value[0] != 1 else name[:-1]}")
    recipes = cells["recipe"].unique()
    if len(recipes) == 1 and recipes[0]:
        parts.append(f"recipe {recipes[0]}")
    spread = " (small print: maximum above, minimum below)" if (cells["seeds"] > 1).any() else ""
    parts.append(seeds_text(cells) + spread)
    return "; ".join(parts) + "."


def _span(values: pd.Series) -> str:
    values = values.dropna()
    if values.empty:
        return ""
    low, high = values.min(), values.max()
    return f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"


def missing_text(cells: pd.DataFrame) -> str:
    """Say how many planned cells have no result, by state; empty when all have one."""
    counts = [(state, int((cells["state"] == state).sum())) for state in
              ("failed", "unfinished", "not run")]  # fmt: skip
    told = [f"{count} {state}" for state, count in counts if count]
    text = f"Without a result, so not shown: {', '.join(told)} (of {len(cells)} cells)."
    return text if told else ""
