"""Which recipe reaches 99 % soonest: tries over a basket of nine cells and three seeds.

    python -m benchmarks recipes                              # what is missing of all tries
    python -m benchmarks recipes --tries first fast --seeds 0 --jobs 2

The basket is Arithmetic, LIS and ED by the three models.  A try is the configuration `recipe=fast`
with some of its keys changed; "first" is the first fast recipe that this project had.  A run ends
when free generation answers 99 % of 500 validation prompts rightly, or after LIMIT_SECONDS.
Seconds are CPU seconds of one thread, training and validation: wall time on an idle machine.
Rows are kept in benchmarks/records/recipes.json as they are measured; a row that is there is not
measured again, unless what it stands for has changed since (recipe, basket, limit): it is then
neither counted nor shown.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from config.build import build_task, initial_model
from config.compose import compose_plain
from config.identity import cell_name
from config.schema import CellConfig, validate_cell
from errors import RunError, UserError
from evaluation.judge import evaluate
from files import write_json
from records.provenance import machine, source
from tasks.data import DataSpec, load_or_build
from tasks.task import SequenceSet, Task
from training.batches import SequenceTensors
from training.trainer import Interrupted, Trainer

RECORD = Path(__file__).parent / "records" / "recipes.json"
CPU = torch.device("cpu")
TARGET = 0.99
LOOK_FROM = 0.9  # share of right chains; the answer is right in at least as many
LIMIT_SECONDS = 150.0
MODELS = ("standard", "sparse", "linear")
SIZES = {"arithmetic": (3, 64), "lis": (8, 64), "ed": (2, 64)}  # problem size, D
MORE = {
    "lis": "task.number_range=40"
}  # with the paper's 250 numbers, 99 % took longer than the limit
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


def main(argv: Sequence[str] | None = None) -> None:
    """Measure what is missing, print the table, keep the record."""
    options = parse(argv)
    rows = json.loads(options.record.read_text())["rows"] if options.record.exists() else []
    known = {key_of(row) for row in of_today(rows)}
    wanted = itertools.product(options.seeds, options.tries, options.tasks, MODELS)
    jobs = [job for job in wanted if job not in known]
    with multiprocessing.get_context("spawn").Pool(options.jobs, maxtasksperchild=1) as pool:
        bar = tqdm(pool.imap_unordered(attempt, jobs), total=len(jobs), unit="run", disable=None)
        for row in bar:
            rows.append(row)
            write_record(options.record, rows)
    print_table(of_today(rows))


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog="benchmarks recipes", description=__doc__)
    parser.add_argument("--tries", nargs="*", default=list(TRIES))
    parser.add_argument("--tasks", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--record", type=Path, default=RECORD)
    options = parser.parse_args(argv)
    for name in options.tries:
        if name not in TRIES:
            raise UserError(f"--tries {name}: must be among {', '.join(TRIES)}")
    return options


def key_of(row: dict[str, Any]) -> tuple[int, str, str, str]:
    """What a row measures: seed, try, task, model."""
    return row["seed"], row["try"], row["task"], row["model"]


def of_today(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of cells and limits as they are now."""
    return [
        row
        for row in rows
        if row["try"] in TRIES and row["task"] in SIZES and row["limit_seconds"] == LIMIT_SECONDS
        and row["cell"] == cell_name(cell_config(*key_of(row)))
    ]  # fmt: skip


def attempt(job: tuple[int, str, str, str]) -> dict[str, Any]:
    """Train one cell by one try until it is solved or out of time."""
    seed, name, task_name, model_name = job
    torch.set_num_threads(1)
    config = cell_config(*job)
    with tempfile.TemporaryDirectory() as folder:
        watch = Watch(build_task(config.task))
        trainer, validation = build_trainer(config, Path(folder), watch)
        ended = watch.follow(trainer, validation)
    return {
        "seed": seed, "try": name, "task": task_name, "model": model_name,
        "size": config.task["size"], "dim": config.model.dim, "changes": TRIES[name],
        "ended": ended, "seconds": round(watch.seconds, 2) if ended == "solved" else None,
        "steps": trainer.state.step, "best_answer_accuracy": watch.best_answer,
        "best_chain_exact_match": watch.best_chain,
        "precision": trainer.precision, "cell": cell_name(config),
        "limit_seconds": LIMIT_SECONDS, "commit": source()["commit"], **machine(CPU),
    }  # fmt: skip


class Watch:
    """Looks at a training from outside: is it solved, is it out of time?

    Answers are generated only when `LOOK_FROM` of the chains are right, and what that costs is no
    training time.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.seconds, self.looking = 0.0, 0.0
        self.best_chain, self.best_answer = 0.0, 0.0

    def follow(self, trainer: Trainer, validation: SequenceSet) -> str:
        """Train to the end; return what ended it."""
        self.trainer, self.validation = trainer, validation
        trainer.should_stop = lambda: self.best_answer >= TARGET or self.spent() > LIMIT_SECONDS
        self.began = time.process_time()
        try:
            trainer.fit()
        except Interrupted:
            return "solved" if self.best_answer >= TARGET else "out of time"
        except RunError as error:
            return str(error)
        return "solved" if self.best_answer >= TARGET else "out of steps"

    def spent(self) -> float:
        """Return the CPU seconds of training and validation so far."""
        return time.process_time() - self.began - self.looking

    def __call__(self, values: dict[str, Any]) -> None:
        """Take what the trainer reports."""
        if "validation_chain_exact_match" not in values:
            return
        self.seconds = self.spent()
        chain = values["validation_chain_exact_match"]
        self.best_chain = max(self.best_chain, chain)
        if chain >= LOOK_FROM:
            begun = time.process_time()
            found = evaluate(self.trainer.evaluated, self.task, self.validation)
            self.best_answer = max(self.best_answer, found.answer_accuracy)
            self.looking += time.process_time() - begun


def cell_config(seed: int, name: str, task: str, model: str) -> CellConfig:
    """Return the cell of the basket under a try."""
    size, dim = SIZES[task]
    words = (
        f"task={task} task.size={size} model={model} model.dim={dim} seed={seed} recipe=fast "
        f"recipe.stop_at=null recipe.validate_every=100 data.validation=500 data.test=500 "
        f"data.train=100000 logger=none {MORE.get(task, '')} {TRIES[name]}"
    )
    return validate_cell(compose_plain("train", words.split()))


def build_trainer(config: CellConfig, folder: Path, watch: Watch) -> tuple[Trainer, SequenceSet]:
    """Return the trainer of a cell, as `sweeps.cell` builds it, and what it validates on."""
    task = build_task(config.task)
    data = config.data
    spec = DataSpec(data.train, data.validation, data.test, data.seed, config.data_dir)
    sets = load_or_build(task, spec, progress=False)
    trainer = Trainer(
        initial_model(config, task, CPU),
        config.recipe,
        SequenceTensors(sets.train),
        SequenceTensors(sets.validation),
        config.seed,
        folder,
        math.inf,
        watch,
    )
    return trainer, sets.validation


def write_record(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write the rows, each with its machine and commit."""
    write_json(path, {"rows": sorted(rows, key=key_of)})


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print median seconds per cell and try, and sums over the cells that every try has.

    A run that was not solved counts with the limit, so its sum is a lower bound, marked ">".
    """
    tries = [name for name in TRIES if any(row["try"] == name for row in rows)]
    table = {
        cell: [[r for r in rows if (r["task"], r["model"], r["try"]) == (*cell, n)] for n in tries]
        for cell in itertools.product(SIZES, MODELS)
    }
    print(f"{'cell':<22}" + "".join(f"{name:>18}" for name in tries))
    for (task, model), runs in table.items():
        name = f"{task} {SIZES[task][0]} {model}"
        print(f"{name:<22}" + "".join(f"{seconds_text(cell):>18}" for cell in runs))
    whole = [[middle(cell) for cell in runs] for runs in table.values() if all(runs)]
    sums = [sum(median for median, _ in column) for column in zip(*whole, strict=True)]
    bounds = [not all(solved for _, solved in column) for column in zip(*whole, strict=True)]
    texts = [f"{'> ' * bound}{total:.0f} s" for total, bound in zip(sums, bounds, strict=True)]
    print(f"{f'sum of {len(whole)} medians':<22}" + "".join(f"{text:>18}" for text in texts))
    if "first" in tries and sums:
        first = sums[tries.index("first")]
        print(f"{'first / this':<22}" + "".join(f"{first / total:>18.2f}" for total in sums))


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
