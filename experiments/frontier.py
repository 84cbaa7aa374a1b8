"""``strategy=frontier``: climb D and stop one step above the first that reaches 90 %.

Cells beyond are not run and stay missing from the table.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence

from experiments.d90 import passes
from experiments.grid import Cell
from experiments.names import cell_settings
from experiments.plan import Sweep


def next_cells(sweep: Sweep) -> list[Cell]:
    """Return the open cells at the next D of every group that still climbs.

    A group waits for a failed cell at its next D.
    """
    table = sweep.enter()
    done = table[table["status"] == "done"]
    accuracies = dict(zip(done["cell"], done["answer_accuracy"], strict=True))
    climbing = [next_of_group(group, accuracies) for group in groups(sweep.cells)]
    wanted = {cell.name for cells in climbing for cell in cells}
    return [cell for cell in sweep.open_cells() if cell.name in wanted]


def groups(cells: Sequence[Cell]) -> list[dict[int, list[Cell]]]:
    """Return the cells by D, ascending, of each group: cells that differ in D and seed alone."""
    found: dict[str, dict[int, list[Cell]]] = {}
    for cell in sorted(cells, key=lambda cell: cell.identity["dim"]):
        settings = cell_settings(cell.config)
        settings["model"] = {**settings["model"], "dim": None}
        key = json.dumps({**settings, "seed": None}, sort_keys=True)
        found.setdefault(key, {}).setdefault(cell.identity["dim"], []).append(cell)
    return list(found.values())


def next_of_group(
    group: Mapping[int, Sequence[Cell]], accuracies: Mapping[str, float]
) -> list[Cell]:
    """Return the cells without an accuracy at the next D."""
    passed = False
    for cells in group.values():
        missing = [cell for cell in cells if cell.name not in accuracies]
        if missing:
            return missing
        if passed:
            return []
        passed = passes(statistics.median(accuracies[cell.name] for cell in cells))
    return []
