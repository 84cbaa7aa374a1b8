"""Plan an experiment's cells where Hydra is, for a machine without it.

    python -m benchmarks.gpu.plan table2 > table2.json
    python -m benchmarks.gpu.plan figure1 recipe=fast --all > plan.json

Writes every cell that results/<experiment>/results.csv does not hold as done, with its whole
resolved configuration and its name, the paper's frontier first: on each size the D at which the
paper's Table 2 finds 90 % (for tasks without such a table, the D of Arithmetic's size of the same
rank), then the next narrower and wider ones, then the rest, the cheapest first.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.shared import call
from experiments.grid import Cell, cells, load_experiment
from experiments.objects import build_task
from experiments.provenance import source
from experiments.store import read_table
from experiments.sweep import training_flops
from tasks.generate import planned_sizes

FRONTIER = {
    "standard": (64, 128, 128, 128),
    "linear": (256, 512, 512, 512),
    "sparse": (128, 256, 256, 256),
}
SAMPLE = 400


def main(argv: Sequence[str] | None = None) -> None:
    """Print the plan."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu.plan",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("experiment")
    parser.add_argument("overrides", nargs="*", help="added to every cell, as recipe=fast")
    parser.add_argument("--all", action="store_true", help="cells that are done, too")
    parser.add_argument("--results-dir", type=Path, default=Path("results"))
    options = parser.parse_args(argv)
    content = plan(options.experiment, options.overrides, options.results_dir, options.all)
    print(json.dumps(content, indent=1))
    print(f"{options.experiment}: {len(content['cells'])} cells to run", file=sys.stderr)


def plan(
    experiment: str, overrides: Sequence[str], results_dir: Path, everything: bool = False
) -> dict[str, Any]:
    """Return the plan as JSON-able data."""
    grid = chosen = cells(load_experiment(experiment), overrides)
    if not everything:
        table = read_table(results_dir / experiment / "results.csv")
        done = set(table["cell"][table["status"].eq("done")])
        chosen = [cell for cell in grid if cell.name not in done]
    means: dict[str, float] = {}
    return {
        "experiment": experiment,
        "overrides": list(overrides),
        **source(),
        "cells": [
            {
                "name": cell.name,
                "config": dataclasses.asdict(cell.config),
                "training_flops": training_flops(cell),
                "mean_length": mean_length(cell, means),
            }
            for cell in frontier_first(chosen, grid)
        ],
    }


def frontier_first(chosen: Sequence[Cell], grid: Sequence[Cell]) -> list[Cell]:
    """Return the cells in the order in which they tell most; ``grid`` holds the done ones too."""
    sizes: dict[str, list[int]] = {}
    for cell in grid:
        known = sizes.setdefault(cell.config.task["name"], [])
        known.append(cell.config.task["size"])
    ranks = {task: sorted(set(known)) for task, known in sizes.items()}

    def order(cell: Cell) -> tuple[int, float]:
        config = cell.config
        guesses = FRONTIER.get(config.model.name)
        if guesses is None:
            return 3, training_flops(cell)
        rank = ranks[config.task["name"]].index(config.task["size"])
        guess = guesses[min(rank, len(guesses) - 1)]
        nearness = {guess: 0, guess // 2: 1, guess * 2: 2}.get(config.model.dim, 3)
        return nearness, training_flops(cell)

    return sorted(chosen, key=order)


def mean_length(cell: Cell, known: dict[str, float]) -> float:
    """Return the mean length of a training sequence without its EOS: tokens that a model reads.

    Over a sample in the training mixture; kept by task, for drawing takes longer than planning.
    """
    key = json.dumps(cell.config.task, sort_keys=True)
    if key not in known:
        task = build_task(cell.config.task)
        sizes = planned_sizes(task, "train", SAMPLE, 0).tolist()
        parts = [task.draw(0, 2, 0, sizes.count(n), size=n) for n in sorted(set(sizes))]
        lengths = [int(length) - 1 for part in parts for length in part.lengths]
        known[key] = sum(lengths) / len(lengths)
    return known[key]


if __name__ == "__main__":
    call(main)
