"""Which learning rate is best at each width, for each mixer, on each task.

    python -m benchmarks rates [max_hours=2] [jobs=2]         # goes on where it stopped
    python -m benchmarks rates max_hours=0                    # draws and prints what there is

Peak rate x {1/4, 1/2, 1, 2, 4} of `recipe=fast` at D = 16, 64, 128 and 256, for the three models
on small Arithmetic, LIS and ED: steps and CPU seconds until 99 % of 500 validation chains are
right.  One seed over the grid, x 8 too where x 4 is the best, then two more at the best rate and
its neighbours.  A run that does
not arrive within LIMIT_STEPS, or the width's seconds, is censored: its steps are a lower bound.

benchmarks/records/rates.json has a row per run, written after every run; a row that is there is not
measured again, unless its configuration or a limit that ended it has changed.  The figure beside it
has a panel per task and model, and a curve per width.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from config.identity import cell_name
from config.schema import CellConfig
from tqdm import tqdm

from benchmarks.shared.cells import BASKET, MODELS, Training, basket_config
from benchmarks.shared.processes import side_by_side
from benchmarks.shared.rate_figure import best_factor, draw, median_steps
from benchmarks.shared.report import RECORDS, about, print_table, read_options, read_rows
from common import write_json

TARGET = 0.99
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
BEYOND = 8.0  # where the largest factor is the best
PARTS = ((16, 64), (256,), (128,))  # widths, what tells most first
SEEDS = (0, 1, 2)
VALIDATE_EVERY = 50
LIMIT_STEPS = 4000
LIMIT_SECONDS = {16: 60.0, 64: 100.0, 128: 150.0, 256: 250.0}
TASKS = tuple(BASKET)
# Sizes at which D = 16 arrives too: three operators stand at a third of the chains after 2,700
# steps, ED of 2 at three quarters and LIS of 8 below 99 % after 4,000.
SMALLER = {
    "arithmetic": "task.size=2 data.train=20000",
    "lis": "task.size=6 task.number_range=20 data.train=50000",
    "ed": "task.size=1 data.train=50000",
}

Row = dict[str, Any]
Job = tuple[str, str, int, float, int]  # task, model, D, factor, seed


@dataclass
class Options:
    """What the command line may set."""

    jobs: int = 2
    max_hours: float = math.inf
    record: Path = RECORDS / "rates.json"


def main(words: Sequence[str] | None = None) -> None:
    """Measure what is missing, keep the record, print the table, draw the figure."""
    options = read_options(Options, words)
    rows = read_rows(options.record)
    deadline = time.monotonic() + 3600 * options.max_hours
    # What the grid finds decides what is tried beyond it, and both decide the repeats.
    for dims, plan in itertools.product(PARTS, (grid, beyond, repeats)):
        for row in runs(plan(dims, of_today(rows)), rows, options.jobs, deadline):
            rows.append(row)
            write_json(options.record, {"rows": sorted(rows, key=key_of)})
    found = of_today(rows)
    print_rows(found)
    draw(found, options.record.with_suffix(".png"), sizes())


def runs(jobs: Iterable[Job], rows: list[Row], processes: int, deadline: float) -> Iterator[Row]:
    """Measure the jobs that have no row yet; none is started after the deadline."""
    known = {key_of(row) for row in of_today(rows)}
    missing = [job for job in jobs if job not in known]
    in_time = itertools.takewhile(lambda job: time.monotonic() < deadline, missing)
    done = side_by_side(attempt, in_time, processes)
    return iter(tqdm(done, total=len(missing), unit="run", disable=None))


def grid(dims: Sequence[int], rows: list[Row]) -> list[Job]:
    """Return all rates at these widths at the first seed, those near the recipe's own first."""
    jobs = [
        (task, model, dim, factor, SEEDS[0])
        for dim, factor, task, model in itertools.product(dims, FACTORS, TASKS, MODELS)
    ]
    return sorted(jobs, key=lambda job: abs(math.log2(job[3])))


def beyond(dims: Sequence[int], rows: list[Row]) -> list[Job]:
    """Return x 8 at the first seed for the cells that solve soonest at x 4."""
    return [
        (*cell, BEYOND, SEEDS[0])
        for cell, best in best_of_grid(dims, rows)
        if best["solved"] and best["factor"] >= FACTORS[-1]
    ]


def repeats(dims: Sequence[int], rows: list[Row]) -> list[Job]:
    """Return further seeds at the best rate and its neighbours, where the grid is complete."""
    found = []
    for cell, best in best_of_grid(dims, rows):
        place = FACTORS.index(min(best["factor"], FACTORS[-1]))
        near = FACTORS[max(0, place - 1) : place + 2]
        found += [(*cell, factor, seed) for seed in SEEDS[1:] for factor in near]
    return found


def best_of_grid(
    dims: Sequence[int], rows: list[Row]
) -> Iterator[tuple[tuple[str, str, int], Row]]:
    """Yield each cell whose grid is complete with the best of its runs at the first seed."""
    for dim, task, model in itertools.product(dims, TASKS, MODELS):
        cell = task, model, dim
        first = [row for row in rows if cell_of(row) == cell and row["seed"] == SEEDS[0]]
        if {row["factor"] for row in first} >= set(FACTORS):
            yield cell, min(first, key=merit)


def merit(row: Row) -> tuple[Any, ...]:
    """Order the runs of one cell, the best first: solved soonest, or else nearest to solved."""
    if row["solved"]:
        return 0, row["steps"], abs(math.log(row["factor"]))
    return 1, -row["best_chain_exact_match"], abs(math.log(row["factor"]))


def attempt(job: Job) -> Row:
    """Train one cell until it is solved or at a limit."""
    task, model, dim, factor, seed = job
    torch.set_num_threads(1)
    config = config_of(job)
    run = Training(config, lambda _, __, chain: chain >= TARGET, LIMIT_SECONDS[dim], LIMIT_STEPS)
    return {
        "task": task, "model": model, "dim": dim, "factor": factor, "seed": seed,
        "peak_rate": config.recipe.peak_learning_rate(dim), "solved": run.solved,
        "ended": run.ended, "steps": run.steps, "seconds": round(run.seconds, 2),
        "best_chain_exact_match": run.best_chain, "precision": run.precision,
        "limit_steps": LIMIT_STEPS, "limit_seconds": LIMIT_SECONDS[dim],
        "cell": cell_name(config), **about(),
    }  # fmt: skip


def config_of(job: Job) -> CellConfig:
    """Return the cell of a job: ``recipe=fast`` with its rate multiplied."""
    task, model, dim, factor, seed = job
    words = f"{SMALLER[task]} recipe.validate_every={VALIDATE_EVERY}"
    config = basket_config(task, model, dim, seed, words)
    rate = factor * config.recipe.learning_rate
    recipe = dataclasses.replace(config.recipe, learning_rate=rate)
    return dataclasses.replace(config, recipe=recipe)


def key_of(row: Row) -> Job:
    """Return what a row measures."""
    return row["task"], row["model"], row["dim"], row["factor"], row["seed"]


def cell_of(row: Row) -> tuple[str, str, int]:
    """Return task, model and width of a row."""
    return row["task"], row["model"], row["dim"]


def sizes() -> dict[str, int]:
    """Return the problem size of each task."""
    return {task: config_of((task, MODELS[0], 64, 1.0, 0)).task["size"] for task in TASKS}


def widths() -> list[int]:
    """Return every D of the grid, the least first."""
    return sorted(itertools.chain.from_iterable(PARTS))


def of_today(rows: list[Row]) -> list[Row]:
    """Return the rows of today's configurations; of censored ones, those of today's limits."""

    def counts(row: Row) -> bool:
        if row["task"] not in TASKS or row["dim"] not in widths():
            return False
        limits = row["limit_steps"], row["limit_seconds"]
        same_limits = limits == (LIMIT_STEPS, LIMIT_SECONDS[row["dim"]])
        return (row["solved"] or same_limits) and row["cell"] == cell_name(config_of(key_of(row)))

    return [row for row in rows if counts(row)]


def print_rows(rows: list[Row]) -> None:
    """Print median steps per cell and factor, and in how many cells a factor is near the best.

    ">" marks a median that is a lower bound, since a run in it was censored there.
    """
    factors = sorted({*FACTORS, *(row["factor"] for row in rows)})
    table, near = [], dict.fromkeys(factors, 0)
    measured = {cell_of(row) for row in rows}
    cells = [cell for cell in itertools.product(TASKS, MODELS, widths()) if cell in measured]
    for cell in cells:
        own = [row for row in rows if cell_of(row) == cell]
        medians = {f: median_steps([r for r in own if r["factor"] == f]) for f in factors}
        best = best_factor(medians)
        for factor in factors:
            near[factor] += best is not None and 0.5 <= factor / best <= 2
        table.append([" ".join(map(str, cell)), *map(steps_text, medians.values())])
    table.append(["within twice the best rate", *(f"{n} of {len(cells)}" for n in near.values())])
    print_table("Steps to 99 %", ["cell", *(f"rate x {factor:g}" for factor in factors)], table)
    print(f"{len(rows)} runs, {sum(row['seconds'] for row in rows) / 3600:.2f} core-hours")


def steps_text(median: tuple[float, bool] | None) -> str:
    """Return median steps, with ">" for a lower bound; "-" where nothing was measured."""
    if median is None:
        return "-"
    return f"{'' if median[1] else '> '}{median[0]:.0f}"
