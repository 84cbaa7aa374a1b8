"""Does the size of the state decide what is learned?  How curves of accuracy shift with H.

Where it does, models with other numbers of heads H need another D but the same bytes of state: with
a state of D^2 / H numbers the least D grows with the square root of H.  Per task, size and model,
the shift of accuracy over D and over bytes of state between any two H (`plots.crossing`), and per
doubling of H, beside what capacity predicts; and a verdict.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from plots import tabular
from plots.cells import Grid, records
from plots.crossing import Locations, locate
from plots.resampling import FEWEST_SEEDS
from plots.tabular import Tabular

CONTROL = 0.05  # a predicted slope below this is none
NAME = "state_shift"
METHOD = (
    "Shift of accuracy to larger D, or to more bytes, in octaves (log2), positive with more heads. "
    "A logistic in log2 D, or in log2 bytes, that rises from chance, with a location for each H "
    "and one width for all is fitted to the runs, beta-distributed about it, those at one D "
    "counting as one; intervals are 95 % of the posterior under flat priors and hold the scatter "
    "of seeds and the grid of D; an end is infinite where it rests on a location beyond the D "
    "measured."
)
RULE = (
    "Capacity: per doubling of H the shift in D agrees with what equal bytes ask for (half an "
    "octave for a state of D²/H) and not with 0; not capacity: it does not agree with that; "
    f"undecided: both, or an open interval, or fewer than {FEWEST_SEEDS} seeds."
)


@dataclass(frozen=True)
class Shifts:
    """The locations of one task, size and model, over log2 D and over log2 bytes.

    ``predicted`` is the shift in log2 D per doubling of H that keeps the bytes equal, ``seeds`` the
    fewest of any cell.
    """

    column: str
    row: str
    over_dim: Locations
    over_bytes: Locations
    predicted: float
    seeds: int

    def verdict(self) -> tuple[str, str]:
        """Return capacity, not capacity, undecided or control, and why."""
        _, low, high = self.over_dim.slope()
        agrees, none = low <= self.predicted <= high, low <= 0 <= high
        if abs(self.predicted) < CONTROL:
            return "control", "its state does not depend on H"
        if self.seeds < FEWEST_SEEDS:
            return "undecided", f"fewer than {FEWEST_SEEDS} seeds; more decide"
        if not agrees:
            return "not capacity", "D decides, whatever H" if none else "neither D nor bytes alone"
        if none:
            _, left, right = self.over_bytes.slope()
            apart = "" if left <= 0 <= right else ", though over bytes the curves lie apart"
            return "undecided", f"over D both agree{apart}; a finer grid of D or more H decide"
        if not (math.isfinite(low) and math.isfinite(high)):
            return "undecided", "accuracy rises beyond the D measured; these decide"
        return "capacity", "curves coincide over bytes, not over D"


def shifts_of(grid: Grid) -> list[Shifts]:
    """Return the shifts of each panel of ``grid``, whose y axis is H, where two H can be told."""
    found = [_shifts(grid, column, row) for column in grid.columns for row in grid.model_rows]
    return [item for item in found if item is not None]


def _shifts(grid: Grid, column: str, row: str) -> Shifts | None:
    panel = grid.panel(column, row)
    done = panel[(panel["state"] == "done") & (panel["state_bytes"] > 0)]
    places = done[["point", "heads", "dim", "state_bytes"]]
    runs = grid.rows[grid.rows["status"] == "done"][["point", "answer_accuracy"]]
    runs = runs.merge(places, on="point")
    chance = float(done["chance_accuracy"].fillna(0.0).mean()) if len(done) else 0.0

    def located(axis: str) -> Locations | None:
        groups = {}
        for heads in np.unique(runs["heads"]):
            part = runs[runs["heads"] == heads]
            pairs = zip(np.log2(part[axis]), part["answer_accuracy"], strict=True)
            groups[int(heads)] = list(pairs)
        return locate(groups, chance)

    over_dim, over_bytes = located("dim"), located("state_bytes")
    if over_dim is None or over_bytes is None:
        return None
    seeds = int(done["seeds"].min())
    return Shifts(column, row, over_dim, over_bytes, predicted_slope(done), seeds)


def predicted_slope(cells: pd.DataFrame) -> float:
    """Return by how many octaves D grows per doubling of H at equal ``state_bytes``."""
    logs = np.log2(cells[["dim", "heads", "state_bytes"]].to_numpy(float))
    design = np.column_stack((np.ones(len(logs)), logs[:, :2]))
    (_, by_dim, by_heads), *_ = np.linalg.lstsq(design, logs[:, 2], rcond=None)
    return float(-by_heads / by_dim)


def rows(found: list[Shifts]) -> pd.DataFrame:
    """Return a row per pair of H and one, of ``heads`` 0, per doubling; octaves, ends infinite."""
    told = []
    for item in found:
        known = sorted(item.over_dim.draws)
        pairs = [(0, 0), *itertools.combinations(known, 2)]
        for one, other in pairs:
            doublings = math.log2(other / one) if one else 1.0
            both = [
                at.shift(one, other) if one else at.slope()
                for at in (item.over_dim, item.over_bytes)
            ]
            values: dict[str, Any] = {"task": item.column, "model": item.row}
            values |= {"heads": one, "other_heads": other, "seeds": item.seeds}
            values["capacity_shift_dim"] = item.predicted * doublings
            for name, interval in zip(("dim", "bytes"), both, strict=True):
                ends = zip(("", "_low", "_high"), interval, strict=True)
                values |= {f"shift_{name}{end}": value for end, value in ends}
            verdict = item.verdict() if not one else ("", "")
            told.append(values | dict(zip(("verdict", "why"), verdict, strict=True)))
    return pd.DataFrame(told)


def interval_text(middle: float, low: float, high: float) -> str:
    """Return e.g. ``+0.48 [+0.21, ∞]``."""
    return f"{signed(middle)} [{signed(low)}, {signed(high)}]"


def signed(value: float) -> str:
    """Return e.g. ``−0.50``, ``+0.00`` or ``∞``."""
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{round(value, 2) + 0.0:+.2f}".replace("-", "−")


def sentences(found: list[Shifts]) -> list[str]:
    """Return the verdict of each task, size and model in words."""
    said = []
    for item in found:
        verdict, why = item.verdict()
        dim, size = (interval_text(*at.slope()) for at in (item.over_dim, item.over_bytes))
        said.append(
            f"{item.column}, {item.row}: {verdict} ({why}): per doubling of H accuracy shifts by "
            f"{dim} octaves of D, where capacity asks for {signed(item.predicted)}, and by {size} "
            "octaves of bytes, where it asks for none."
        )
    return said or ["No task, size and model has two numbers of heads, each at two D or more."]


def printed_table(
    frame: pd.DataFrame, found: list[Shifts], experiment: Any, notes: list[str]
) -> Tabular:
    """Return the table as it is printed."""
    printed = []
    for line in records(frame):
        heads = f"{line.heads} to {line.other_heads}" if line.heads else "per doubling"
        dim = interval_text(line.shift_dim, line.shift_dim_low, line.shift_dim_high)
        size = interval_text(line.shift_bytes, line.shift_bytes_low, line.shift_bytes_high)
        capacity = signed(line.capacity_shift_dim)
        printed.append([line.task, line.model, heads, dim, capacity, size, line.verdict, line.why])
    return Tabular(
        title=f"Does the size of the state decide: {experiment.name}",
        label=tabular.label_of("state", experiment.name),
        caption="Shift of accuracy between numbers of heads, over D and over bytes of state.",
        header=["task", "model", "heads", "shift in D", "capacity asks for", "shift in bytes",
                "verdict", "why"],
        rows=printed,
        notes=[METHOD, RULE, *notes],
        said=sentences(found),
    )  # fmt: skip
