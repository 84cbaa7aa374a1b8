"""What stands under `plots.required_dimension`: exponents, method, evidence and what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from plots.budgets import Budgets, sentences
from plots.cells import Grid, records
from plots.fit import Growth
from plots.frontier import UNMEASURED, Requirement, requirements_of
from plots.growth_rows import fits
from plots.resampling import METHOD
from plots.text import sizes_text
from plots.words import footer, seeds_text

LINES = (
    "Lines: the fitted growth, which goes through the bars and not the marks; where there are too "
    "few sizes, from mark to mark, past those that only bound D from above, dotted from where no "
    "smaller D was measured."
)
Place = tuple[str, str, Requirement]


def text(
    grid: Grid, fitted: Mapping[tuple[str, str], Growth | None], budgets: Budgets, experiment: Any
) -> str:
    """Return the whole text under the figure."""
    places = requirements(grid)
    lines = _exponents(grid, fitted)
    lines.append(f"{METHOD} {LINES}" if lines else f"Too few sizes for an exponent. {LINES}")
    beside = "Models of one L stand side by side. " if len(grid.model_rows) > 1 else ""
    lines.append(f"{beside}{evidence([item for *_, item in places], grid)}")
    told = [*falling(places), *unmeasured(places), *sentences(budgets)]
    return footer([*lines, *told], grid, experiment)


def requirements(grid: Grid, columns: Iterable[str] | None = None) -> list[Place]:
    """Return column, row and what is known, for each least D of the grid or of ``columns``."""
    return [
        (column, row, item)
        for column in (grid.columns if columns is None else columns)
        for row in grid.model_rows
        for item in requirements_of(grid, column, row)
    ]


def unmeasured(places: Iterable[Place]) -> list[str]:
    """Say of which models and sizes no D has a result: an absent mark means nothing else."""
    absent = [(c, r, item.size) for c, r, item in places if item.state in UNMEASURED]
    return [f"No result, hence no mark: {sizes_text(absent)}."] if absent else []


def falling(places: Iterable[Place]) -> list[str]:
    """Say where a D wider than the least fails again."""
    told = [
        f"{column}: {row} n = {item.size} (least D {item.dim}, fails at "
        f"{', '.join(map(str, item.fails_above))})"
        for column, row, item in places
        if item.fails_above
    ]
    return [f"A wider D fails again: {'; '.join(told)}."] if told else []


def evidence(items: Iterable[Requirement], grid: Grid) -> str:
    """Say how many seeds stand behind the least D, and by which rule they are found."""
    reached = [item for item in items if item.dim is not None]
    confirmed = sum(item.confirmed for item in reached)
    begun = sum(item.searched for item in reached) - confirmed
    plain = f"{seeds_text(grid.cells).capitalize()}."
    if not confirmed and not begun:
        return plain
    words = f"{confirmed} of {len(reached)} least D are confirmed"
    words += f", {begun} in part" if begun else ""
    rest = "" if confirmed + begun == len(reached) else f" The others: {plain}"
    return (
        f"{words}: the median seed reaches 90 % at its best rate, at the D below, where one was "
        f"measured, at none.{rest}"
    )


def _exponents(grid: Grid, fitted: Mapping[tuple[str, str], Growth | None]) -> list[str]:
    """Return a line of exponents per column in which there is one."""
    lines, told = [], fits(grid, dict(fitted))
    for column in grid.columns:
        cells = grid.cells[grid.cells["column"].eq(column) & grid.cells["state"].ne("not run")]
        here = told[told["task"].eq(column) & told["model"].isin(cells["row"])]
        if here["comment"].eq("").any():
            lines.append(f"{column}: {' | '.join(map(_exponent, records(here)))}.")
    return lines


def _exponent(item: Any) -> str:
    """Return a row of `fits` in words."""
    theory = f" (theory: {item.theory})" if item.theory else ""
    if item.comment:
        return f"{item.model} {item.comment}{theory}"
    return f"{item.model} {Growth(item.exponent, item.low, item.high, item.sizes).text()}{theory}"
