"""Which recipe reaches 99 % soonest: tries over a basket of nine cells and three seeds.

    python -m benchmarks recipes                              # what is missing of all tries
    python -m benchmarks recipes tries=first,fast seeds=0 jobs=2

The basket is Arithmetic, LIS and ED by the three models.  A try is the configuration `recipe=fast`
with some of its keys changed; "first" is the first fast recipe that this project had.  A run ends
when free generation answers 99 % of 500 validation prompts rightly, or after LIMIT_SECONDS.
Seconds are CPU seconds of one thread, training and validation: wall time on an idle machine.
Rows are kept in benchmarks/records/recipes.json as they are measured; a row that is there is not
measured again, unless what it stands for has changed since (recipe, basket, limit): it is then
neither counted nor shown.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from config.build import build_task
from config.identity import cell_name
from config.schema import CellConfig
from tqdm import tqdm

from benchmarks.shared.cells import BASKET, MODELS, Training, basket_config
from benchmarks.shared.processes import side_by_side
from benchmarks.shared.report import (
    RECORDS,
    about,
    print_table,
    read_options,
    read_rows,
    require_among,
)
from common import write_json
from evaluation.judge import evaluate
from models.transformer import Transformer
from tasks.task import SequenceSet

TARGET = 0.99
LOOK_FROM = 0.9  # share of right chains; the answer is right in at least as many
LIMIT_SECONDS = 150.0
DIM = 64
# The first fast recipe, the second, and what was tried beside the one of today.
FIRST = (
    "recipe.optimizer=adamw recipe.learning_rate=0.003 recipe.betas=[0.9,0.98] "
    "recipe.weight_decay=0.01 recipe.decay=coupled recipe.decay_vectors=true "
    "recipe.rates.embedding.exponent=0.5 recipe.rates.head.exponent=0.5 "
    "recipe.rates.vector.exponent=0.5 recipe.embedding_ratio=null recipe.average_decay=null "
    "recipe.schedule=cosine recipe.final_learning_rate=0.02 recipe.steps=20000 "
    "recipe.warmup=0.02 recipe.warmup_steps=null recipe.cooldown=0.0 recipe.batch_size=64"
)
SECOND = (
    "recipe.average_decay=null recipe.schedule=cosine recipe.final_learning_rate=0.02 "
    "recipe.warmup=0.05 recipe.warmup_steps=null recipe.cooldown=0.0"
)
TRIES = {
    "first": FIRST,
    "second": SECOND,
    "fast": "",
    "adamw": "recipe.optimizer=adamw recipe.learning_rate=0.003 recipe.decay=coupled "
    "recipe.weight_decay=0.01",
    "constant": "recipe.schedule=constant recipe.learning_rate=0.005",
    "batch 32": "recipe.batch_size=32",
    "float32": "recipe.precision=float32",
    "embedding as Xavier": "recipe.embedding_ratio=null",
    "embedding 0.5": "recipe.embedding_ratio=0.5",
    "rate 0.005": "recipe.learning_rate=0.005",
    "embedding 0.5, rate 0.005": "recipe.embedding_ratio=0.5 recipe.learning_rate=0.005",
}


@dataclass
class Options:
    """What the command line may set."""

    tries: list[str] = field(default_factory=lambda: list(TRIES))
    tasks: list[str] = field(default_factory=lambda: list(BASKET))
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2])
    jobs: int = 2
    record: Path = RECORDS / "recipes.json"


Job = tuple[int, str, str, str]  # seed, try, task, model


def main(words: Sequence[str] | None = None) -> None:
    """Measure what is missing, print the table, keep the record."""
    options = read_options(Options, words)
    require_among("tries", options.tries, TRIES)
    require_among("tasks", options.tasks, BASKET)
    rows = read_rows(options.record)
    known = {key_of(row) for row in of_today(rows)}
    wanted = itertools.product(options.seeds, options.tries, options.tasks, MODELS)
    jobs = [job for job in wanted if job not in known]
    runs = side_by_side(attempt, jobs, options.jobs)
    for row in tqdm(runs, total=len(jobs), unit="run", disable=None):
        rows.append(row)
        write_json(options.record, {"rows": sorted(rows, key=key_of)})
    print_rows(of_today(rows))


def key_of(row: dict[str, Any]) -> Job:
    """Return what a row measures: seed, try, task, model."""
    return row["seed"], row["try"], row["task"], row["model"]


def of_today(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of cells and limits as they are now."""
    return [
        row
        for row in rows
        if row["try"] in TRIES and row["task"] in BASKET and row["limit_seconds"] == LIMIT_SECONDS
        and row["cell"] == cell_name(config_of(key_of(row)))
    ]  # fmt: skip


def config_of(job: Job) -> CellConfig:
    """Return the cell of the basket under a try."""
    seed, name, task, model = job
    return basket_config(task, model, DIM, seed, f"recipe.validate_every=100 {TRIES[name]}")


def attempt(job: Job) -> dict[str, Any]:
    """Train one cell by one try until it is solved or out of time."""
    seed, name, task_name, model_name = job
    torch.set_num_threads(1)
    config = config_of(job)
    task, best = build_task(config.task), [0.0]

    def is_solved(model: Transformer, validation: SequenceSet, chain: float) -> bool:
        if chain >= LOOK_FROM:
            best.append(evaluate(model, task, validation).answer_accuracy)
        return best[-1] >= TARGET

    run = Training(config, is_solved, LIMIT_SECONDS)
    return {
        "seed": seed, "try": name, "task": task_name, "model": model_name,
        "size": config.task["size"], "dim": config.model.dim, "changes": TRIES[name],
        "ended": run.ended, "seconds": round(run.seconds, 2) if run.solved else None,
        "steps": run.steps, "best_answer_accuracy": max(best),
        "best_chain_exact_match": run.best_chain, "precision": run.precision,
        "cell": cell_name(config), "limit_seconds": LIMIT_SECONDS, **about(),
    }  # fmt: skip


def print_rows(rows: list[dict[str, Any]]) -> None:
    """Print median seconds per cell and try, and sums over the cells that every try has.

    A run that was not solved counts with the limit, so its sum is a lower bound, marked ">".
    """
    tries = [name for name in TRIES if any(row["try"] == name for row in rows)]
    runs = {
        cell: [[r for r in rows if (r["task"], r["model"], r["try"]) == (*cell, n)] for n in tries]
        for cell in itertools.product(BASKET, MODELS)
    }
    table = [[" ".join(cell), *map(seconds_text, columns)] for cell, columns in runs.items()]
    whole = [[middle(cell) for cell in columns] for columns in runs.values() if all(columns)]
    sums = [sum(median for median, _ in column) for column in zip(*whole, strict=True)]
    bounds = [not all(solved for _, solved in column) for column in zip(*whole, strict=True)]
    texts = [f"{'> ' * bound}{total:.0f} s" for total, bound in zip(sums, bounds, strict=True)]
    table.append([f"sum of {len(whole)} medians", *texts])
    if "first" in tries and sums:
        first = sums[tries.index("first")]
        table.append(["first / this", *(f"{first / total:.2f}" for total in sums)])
    print_table("CPU seconds to 99 %", ["cell", *tries], table)


def middle(cell: list[dict[str, Any]]) -> tuple[float, bool]:
    """Return median seconds, unsolved runs at the limit, and whether all were solved."""
    taken = [LIMIT_SECONDS if row["seconds"] is None else row["seconds"] for row in cell]
    return statistics.median(taken), all(row["seconds"] is not None for row in cell)


def seconds_text(cell: list[dict[str, Any]]) -> str:
    """Return median seconds and, where some runs were not solved, how many were."""
    if not cell:
        return "-"
    median, solved = middle(cell)
    count = sum(row["seconds"] is not None for row in cell)
    return f"{median:.0f} s" if solved else f"{median:.0f} s ({count}/{len(cell)})"
