"""How the least D grows with the sequence length, beside the paper's Table 1, with a verdict.

Per task and model: the exponent b of D ~ L^b with its 95 % interval (`plots.fit`), what theory
says, and whether the measurement confirms or contradicts it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from plots import paper, tabular
from plots.budgets import UNKNOWN, YES, Budgets, of_grid
from plots.cells import Grid, gather, records
from plots.fit import Growth
from plots.frontier import Requirement, requirements_of
from plots.paper import Prediction
from plots.resampling import FEWEST_SEEDS, METHOD, doubts, growth_of
from plots.tabular import Tabular
from plots.words import notes_of

NAME = "exponents"
TOLERANCE = 0.125
MOST_SPAN = 10.0  # octaves of L
HEADER = ["task", "model", "exponent", "95 % interval", "sizes", "theory", "verdict", "why",
          "would decide"]  # fmt: skip
RULE = (
    f"Confirmed: the whole interval lies within {TOLERANCE:g} of theory, half the step between the "
    "exponents that theory tells apart (of a lower bound also anywhere above, of an upper bound "
    "anywhere below). Contradicted: none of it does. Else undecided, and wherever the least D of a "
    "size is limited by the budget, or may be, as far as is known, or rests on fewer than "
    f"{FEWEST_SEEDS} seeds. Theory speaks of what can be expressed, the measurement of what was "
    "learned."
)


def draw(table: pd.DataFrame, plan: pd.DataFrame, experiment: Any, out: Path) -> list[Path]:
    """Write ``exponents.csv``, ``.md`` and ``.tex``."""
    grid = gather(table, plan)
    frame = rows(grid, of_grid(grid, out.parent))
    printed = printed_table(frame, grid, experiment)
    return tabular.write(printed.texts(frame), out, NAME)


def rows(grid: Grid, budgets: Budgets) -> pd.DataFrame:
    """Return a row per task, model and prediction; without a prediction, one."""
    found = []
    for column in grid.columns:
        for row in grid.model_rows:
            items = requirements_of(grid, column, row)
            if not items:
                continue
            growth = growth_of(grid, column, row, items)
            first = grid.panel(column, row).iloc[0]
            limits = [budgets[column, row, item.size].limited for item in items]
            for prediction in paper.predictions(first["task"], first["model"]) or (None,):
                decision = verdict(growth, prediction, doubts(items, limits))
                told = {"verdict": decision[0], "why": decision[1], "would_decide": ""}
                if decision[0] == "undecided" and prediction is not None:
                    told["would_decide"] = deciding(growth, prediction, items, limits)
                said = prediction.words() if prediction else ""
                found.append(_row(column, row, growth, items) | {"theory": said} | told)
    return pd.DataFrame(found)


def _row(column: str, row: str, growth: Growth | None, items: list[Requirement]) -> dict[str, Any]:
    return {
        "task": column,
        "model": row,
        "exponent": growth.exponent if growth else np.nan,
        "low": growth.low if growth else np.nan,
        "high": growth.high if growth else np.nan,
        "sizes": sum(item.measured for item in items),
        "least_seeds": min(item.seeds for item in items),
    }


def verdict(
    growth: Growth | None, prediction: Prediction | None, doubtful: list[str]
) -> tuple[str, str]:
    """Return confirmed, contradicted or undecided by `RULE`, and why; empty without theory."""
    if prediction is None:
        return "", ""
    if growth is None:
        return "undecided", "too few points"
    if doubtful:
        return "undecided", "; ".join(doubtful)
    low, high = prediction.region(TOLERANCE)
    if low <= growth.low and growth.high <= high:
        return "confirmed", ""
    if growth.high < low or growth.low > high:
        return "contradicted", "grows slower" if growth.high < low else "grows faster"
    return "undecided", "part of the interval agrees"


def deciding(
    growth: Growth | None, prediction: Prediction, items: list[Requirement], limits: list[str]
) -> str:
    """Return what would decide an undecided statement: which sizes need what, and longer L.

    An interval narrows as the span of log L widens; the length named is the one at which it would
    lie on one side of the region that agrees, did the exponent stay where it is.
    """
    run = [item for item in items if item.measured]
    sizes = {
        "results": [item for item in items if not item.measured],
        "more steps": [i for i, limit in zip(items, limits, strict=True) if limit == YES],
        "more steps (or curves)": [
            item for item, limit in zip(items, limits, strict=True) if limit == UNKNOWN
        ],
        f"{FEWEST_SEEDS} seeds": [i for i in run if i.seeds < FEWEST_SEEDS],
        "larger D": [i for i in run if i.dim is None],
        "smaller D": [i for i in run if i.dim is not None and not i.below],
    }
    told = [
        f"{what} at n = {', '.join(str(item.size) for item in at)}"
        for what, at in sizes.items()
        if at
    ]
    if growth is None:
        told.append("least D at three sizes or more, two of them within the grid")
    elif (longest := decisive_length(growth, prediction, items)) is not None:
        told.append(f"sizes up to L = {longest} or so, or a finer grid of D")
    return "; ".join(told)


def decisive_length(growth: Growth, prediction: Prediction, items: list[Requirement]) -> int | None:
    """Return the longest L that would decide, did exponent and shortest L stay; None where none is
    needed or a thousandfold span is not enough."""
    ends = [end for end in prediction.region(TOLERANCE) if np.isfinite(end)]
    reach = {end: growth.high - growth.exponent for end in ends if end > growth.exponent}
    reach |= {end: growth.exponent - growth.low for end in ends if end <= growth.exponent}
    needed = max(
        (np.inf if end == growth.exponent else width / abs(end - growth.exponent))
        for end, width in reach.items()
    )
    lengths = [item.max_len for item in items if not np.isnan(item.max_len)]
    span = np.log2(max(lengths) / min(lengths))
    if needed <= 1 or not np.isfinite(needed) or needed * span > MOST_SPAN:
        return None
    longest = min(lengths) * 2 ** (needed * span)
    return int(float(f"{longest:.2g}"))


def printed_table(frame: pd.DataFrame, grid: Grid, experiment: Any) -> Tabular:
    """Return the table as it is printed."""
    printed = []
    for line in records(frame):
        exponent, interval = "too few points", ""
        if not np.isnan(line.exponent):
            text = Growth(line.exponent, line.low, line.high, line.sizes).text()
            exponent, _, interval = text.partition(" ")
        said = [line.theory, line.verdict, line.why, line.would_decide]
        printed.append([line.task, line.model, exponent, interval, str(line.sizes), *said])
    return Tabular(
        title=f"Growth of the least D: {experiment.name}",
        label=tabular.label_of("exponents", experiment.name),
        caption="Exponents of the least D for 90 % answer accuracy in the longest sequence L.",
        header=HEADER,
        rows=printed,
        notes=[METHOD, RULE, *notes_of(grid)],
        groups=1,
    )
