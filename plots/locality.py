"""Does locality help the efficient models?  ED beside ED_Local, with the measured m.

The paper's section 5: a task is m-local where no token needs one further back than m; sparse
attention then needs a constant D, linear attention at least the square root of m.  ED_Local
restates what the next row needs, so m is small; ED's entries need letters of the prompt.  Both ask
the same questions, by chains of different lengths L: least D are compared at equal L.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from plots import tabular
from plots.budgets import Budgets, of_grid
from plots.cells import Grid, gather, records
from plots.fit import Growth, growth
from plots.frontier import UNMEASURED, Requirement, requirements_of
from plots.resampling import doubts, growth_of
from plots.tabular import Tabular, plain
from plots.words import notes_of
from tasks.ed import EditDistance
from tasks.ed_local import EditDistanceLocal
from tasks.locality import measure

NAME = "locality"
TASKS = {"ed": EditDistance, "ed_local": EditDistanceLocal}
METHOD = (
    "m: the largest distance from a token of chain or answer to one it needs, over 20 sequences. "
    "Least D: between the largest D that fails and the least that does not. Compared at each L of "
    "ED_Local with ED's at the next smaller and next larger L, supposing that the least D does not "
    "fall as L grows: helps, where ED surely needs a larger D; hurts, where ED_Local does; else "
    "the intervals overlap, or ED was not measured on both sides."
)


@dataclass(frozen=True)
class Compared:
    """One model on both tasks: requirements, and ED_Local's sizes by how they compare."""

    local: list[Requirement]
    ed: list[Requirement]
    by_size: dict[int, str]
    doubtful: list[str]

    @property
    def verdict(self) -> str:
        """Return helps, hurts or undecided; one length alone says nothing of a trend."""
        told = [word for word in self.by_size.values() if word]
        sure = len(told) > 1 and len(set(told)) == 1 and not self.doubtful
        return told[0] if sure else "undecided"


def draw(table: pd.DataFrame, plan: pd.DataFrame, experiment: Any, out: Path) -> list[Path]:
    """Write ``locality.csv``, ``.md`` and ``.tex``; nothing without ED and ED_Local."""
    grid = gather(table, plan)
    found = compared(grid, of_grid(grid, out.parent))
    frame = rows(grid, found)
    if frame.empty:
        return []
    printed = printed_table(grid, frame, found, experiment)
    return tabular.write(printed.texts(frame), out, NAME)


def compared(grid: Grid, budgets: Budgets) -> dict[str, Compared]:
    """Return each model that has both tasks, by its label."""
    columns = _columns(grid)
    found = {}
    for row in grid.model_rows if len(columns) == len(TASKS) else ():
        ed, local = (requirements_of(grid, columns[task], row) for task in TASKS)
        if ed and local:
            doubtful = []
            for task, items in zip(TASKS, (ed, local), strict=True):
                limits = [budgets[columns[task], row, item.size].limited for item in items]
                doubtful += [f"{columns[task]}: {doubt}" for doubt in doubts(items, limits)]
            by_size = {item.size: compare(item, ed) for item in local}
            found[row] = Compared(local, ed, by_size, doubtful)
    return found


def _columns(grid: Grid) -> dict[str, str]:
    names = grid.cells[["column", "task"]].drop_duplicates()
    return {task: names.loc[names["task"] == task, "column"].iloc[0]
            for task in TASKS if (names["task"] == task).sum() == 1}  # fmt: skip


def compare(local: Requirement, ed: list[Requirement]) -> str:
    """Return helps or hurts where the intervals of least D at equal L decide, else nothing."""
    if not local.measured:
        return ""
    known = [item for item in ed if item.measured]
    shorter = [item.below or 0 for item in known if item.max_len <= local.max_len]
    longer = [item.dim or math.inf for item in known if item.max_len >= local.max_len]
    at_least, at_most = max(shorter, default=0), min(longer, default=math.inf)
    if local.dim is not None and local.dim <= at_least:
        return "helps"
    return "hurts" if (local.below or 0) >= at_most else ""


@functools.lru_cache(maxsize=256)
def distance(task: str, size: int) -> int:
    """Return the measured m of ED or ED_Local."""
    return measure(TASKS[task](size)).distance


def rows(grid: Grid, found: dict[str, Compared]) -> pd.DataFrame:
    """Return a row per model, task and size: L, m, the least D's interval, the comparison."""
    columns = _columns(grid)
    told = []
    for model, item in found.items():
        for task, items in zip(TASKS, (item.ed, item.local), strict=True):
            told += [
                {
                    "model": model,
                    "task": columns[task],
                    "size": one.size,
                    "max_len": TASKS[task](one.size).max_len,
                    "m": distance(task, one.size),
                    "state": one.state,
                    "below": one.below,
                    "dim": one.dim,
                    "seeds": one.seeds,
                    "locality": item.by_size[one.size] if task == "ed_local" else "",
                }
                for one in items
            ]
    frame = pd.DataFrame(told)
    return frame if frame.empty else frame.astype({"below": "Int64", "dim": "Int64"})


def sentences(grid: Grid, found: dict[str, Compared]) -> list[str]:
    """Say of each model whether locality helps, and how D grows with L and with m."""
    columns, said = _columns(grid), []
    for model, item in found.items():
        counts = {
            word: sum(told == word for told in item.by_size.values()) for word in ("helps", "hurts")
        }
        grows = [
            f"{columns[task]} D ~ L^{_text(growth_of(grid, columns[task], model))}, "
            f"m^{_text(growth_in_distance(task, items))}"
            for task, items in zip(TASKS, (item.ed, item.local), strict=True)
        ]
        why = f" ({'; '.join(item.doubtful)})" if item.doubtful else ""
        said.append(
            f"{model}: {item.verdict}{why}: at {counts['helps']} of {len(item.by_size)} lengths "
            f"locality helps, at {counts['hurts']} it hurts. {'; '.join(grows)}."
        )
    return said


def growth_in_distance(task: str, items: list[Requirement]) -> Growth | None:
    """Return the growth of the least D with m, without the scatter of seeds."""
    known = [item for item in items if item.measured]
    ends = np.array([(item.below or 0, item.dim or math.inf) for item in known], float)
    if not len(ends):
        return None
    return growth([distance(task, item.size) for item in known], ends[:, 0], ends[:, 1])


def _text(found: Growth | None) -> str:
    return found.text() if found else "(too few points)"


def printed_table(
    grid: Grid, frame: pd.DataFrame, found: dict[str, Compared], experiment: Any
) -> Tabular:
    """Return the table as it is printed."""
    printed: list[list[str | None]] = [
        [
            line.model, line.task, str(line.size), plain(line.max_len), str(line.m),
            _least(line), str(line.seeds), line.locality,
        ]
        for line in records(frame)
    ]  # fmt: skip
    return Tabular(
        title=f"Does locality help: {experiment.name}",
        label=tabular.label_of("locality", experiment.name),
        caption="Least D for 90 % on edit distance, with and without a local chain.",
        header=["model", "task", "n", "L", "m", "D", "seeds", "verdict"],
        rows=printed,
        notes=[
            METHOD,
            "Theory under locality: constant D for sparse attention, at least √m for linear.",
            *notes_of(grid),
        ],
        said=sentences(grid, found),
    )


def _least(line: Any) -> str:
    if line.state in UNMEASURED:
        return line.state
    if pd.isna(line.dim):
        return f"> {line.below}"
    return f"≤ {line.dim}" if pd.isna(line.below) else f"({line.below}, {line.dim}]"
