"""The least D that reaches 90 % answer accuracy, found by bisection instead of filling the grid.

Bisection supposes that accuracy does not fall as D grows.  What follows from that supposition
and was not measured is called inferred, and enters no results table: `frontier.csv` says of every
cell of the grid which it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from config.columns import described
from config.identity import measurement_settings
from files import write_atomically
from sweeps.plan import Planned, Sweep

THRESHOLD = 0.9


@dataclass
class Group:
    """Cells that differ in D alone, narrowest first, with what is measured of them.

    ``accuracy[i]`` is the answer accuracy of ``cells[i]``, None where not measured.  ``high`` is
    the index of the narrowest cell that was measured to reach the threshold (the number of cells
    if none was), ``low`` that of the widest one below it that was measured not to (-1 if none).
    """

    cells: list[Planned]
    accuracy: list[float | None]

    @property
    def dims(self) -> list[int]:
        """The widths, ascending."""
        return [described(planned.cell.config)["dim"] for planned in self.cells]

    @property
    def high(self) -> int:
        """See the class."""
        reaching = [i for i, share in enumerate(self.accuracy) if _reaches(share)]
        return min(reaching, default=len(self.cells))

    @property
    def low(self) -> int:
        """See the class."""
        below = self.accuracy[: self.high]
        return max((i for i, share in enumerate(below) if share is not None), default=-1)

    @property
    def solved(self) -> bool:
        """Whether nothing lies between."""
        return self.high - self.low == 1

    @property
    def next(self) -> Planned | None:
        """The cell to measure next: the one half-way; None when solved."""
        return None if self.solved else self.cells[(self.low + self.high) // 2]

    @property
    def least_dim(self) -> int | None:
        """The least D that reaches the threshold; None when not known, or when none does."""
        return self.dims[self.high] if self.solved and self.high < len(self.cells) else None

    @property
    def monotone(self) -> bool:
        """Whether no wider cell was measured to miss what a narrower one reaches."""
        return all(share is None or _reaches(share) for share in self.accuracy[self.high :])

    def verdicts(self) -> list[tuple[str, bool | None]]:
        """Return, cell by cell, (measured, inferred or unknown; whether it reaches)."""
        found: list[tuple[str, bool | None]] = []
        for index, share in enumerate(self.accuracy):
            if share is not None:
                found.append(("measured", _reaches(share)))
            elif self.low < index < self.high:
                found.append(("unknown", None))
            else:
                found.append(("inferred", index >= self.high))
        return found

    def outcome(self) -> str:
        """Return in words what is known of the least D."""
        planned = self.next
        if planned is not None:
            reason = f" ({planned.reason})" if planned.reason else ""
            return f"open: D={described(planned.cell.config)['dim']} is {planned.status}{reason}"
        known = f"least D {self.least_dim}" if self.least_dim else f"more than D {self.dims[-1]}"
        return known if self.monotone else f"{known}; not monotone, a wider one falls short"


def _reaches(share: float | None) -> bool:
    return share is not None and share >= THRESHOLD


def groups(plan: Iterable[Planned], accuracies: Mapping[str, float]) -> list[Group]:
    """Return the cells of ``plan`` grouped by everything but D."""
    found: dict[str, list[Planned]] = {}
    for planned in plan:
        part = measurement_settings(planned.cell.config)
        part["model"] = {**part["model"], "dim": None}
        found.setdefault(json.dumps(part, sort_keys=True), []).append(planned)
    ordered = (
        sorted(part, key=lambda p: described(p.cell.config)["dim"]) for part in found.values()
    )
    return [
        Group(
            part,
            [accuracies.get(p.cell.name) if p.status == "done" else None for p in part],
        )
        for part in ordered
    ]


def _dim(planned: Planned) -> int:
    return int(described(planned.cell.config)["dim"])


def search(sweep: Sweep, launch: Callable[[Sequence[Planned]], None]) -> list[Group]:
    """Measure half-way cells, all groups side by side, until every group is solved or stuck.

    A group is stuck when its cell fails or is in other hands; a cell is launched once.
    """
    launched: set[str] = set()
    while True:
        found = standing(sweep)
        halfway = [group.next for group in found if group.next is not None]
        chosen = [p for p in sweep.to_launch(halfway) if p.cell.name not in launched]
        if not chosen:
            return found
        launched |= {planned.cell.name for planned in chosen}
        launch(chosen)


def standing(sweep: Sweep) -> list[Group]:
    """Return the groups as the results table has them now."""
    table = sweep.enter()
    done = table[table["status"].eq("done")]
    accuracies = dict(zip(done["cell"], done["answer_accuracy"].astype(float), strict=True))
    return groups(sweep.plan(), accuracies)


def write_frontier(found: Iterable[Group], path: Path) -> pd.DataFrame:
    """Write a row per cell of the grid: measured or inferred, and what follows; return them."""
    rows: list[dict[str, Any]] = []
    for group in found:
        least = {"least_dim": group.least_dim, "outcome": group.outcome()}
        verdicts = group.verdicts()
        for planned, (how, reaches), share in zip(
            group.cells, verdicts, group.accuracy, strict=True
        ):
            which = described(planned.cell.config) | {"cell": planned.cell.name}
            rows.append(
                {**which, "how": how, "reaches": reaches, "answer_accuracy": share, **least}
            )
    table = pd.DataFrame(rows).astype({"least_dim": "Int64"})
    write_atomically(path, lambda temporary: table.to_csv(temporary, index=False))
    return table


def print_frontier(found: Sequence[Group]) -> None:
    """Print a line per group, and how many cells were measured and inferred."""
    counts = {"measured": 0, "inferred": 0, "unknown": 0}
    for group in found:
        which = described(group.cells[0].cell.config)
        told = []
        for planned, (how, reaches) in zip(group.cells, group.verdicts(), strict=True):
            counts[how] += 1
            mark = {True: "yes", False: "no", None: "?"}[reaches]
            told.append(
                f"{described(planned.cell.config)['dim']}: {mark}{'' if how == 'measured' else '*'}"
            )
        print(
            "{task} n={size} {model} layers={layers} seed={seed}: ".format(**which)
            + f"{group.outcome()}   [{', '.join(told)}]"
        )
    print(
        f"frontier at {THRESHOLD:.0%} answer accuracy: {counts['measured']} cells measured, "
        f"{counts['inferred']} inferred (*), {counts['unknown']} unknown"
    )
