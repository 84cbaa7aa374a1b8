"""What a sweep costs besides its cells: planning, records, merging, memory.

    python -m benchmarks sweep [cells=10000]        # table and benchmarks/records/sweep.json

The cells are trivial: training and evaluation are replaced by made-up figures, everything else
is the code that a real sweep runs (`Sweep`, `Watcher`, `run_cell`, the store).  The cells run
one after another in this process, so that no launcher is measured.  CPU seconds of this process,
on one thread: wall time on an idle machine.
"""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from config.grid import Experiment, experiment_from
from config.schema import CellConfig
from hydra.core.utils import JobReturn, JobStatus
from sweeps import cell as cell_module
from sweeps.cost import CostEstimate
from sweeps.launch import launch
from sweeps.plan import Planned, Sweep
from sweeps.tables import print_plan, print_summary
from sweeps.watch import Watcher
from tqdm import tqdm

from benchmarks.shared.report import RECORDS, print_table, read_options, write_record
from common import write_text


@dataclass
class Options:
    """What the command line may set."""

    cells: int = 10_000
    record: Path = RECORDS / "sweep.json"


def main(words: Sequence[str] | None = None) -> None:
    """Measure, print the table, write the record."""
    options = read_options(Options, words)
    torch.set_num_threads(1)
    experiment = trivial_experiment(options.cells)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        measured = measure(experiment)
    print_table("A sweep of trivial cells", ["what", "measured"], measured.items())
    load = {"load_average": list(os.getloadavg())}
    write_record(options.record, {**load, "measured": measured})


def trivial_experiment(count: int) -> Experiment:
    """Return an experiment of ``count`` cells over tasks, sizes, models, dims and seeds."""
    grid = {
        "task": ["arithmetic", "lis"],
        "task.size": [2, 3, 4, 5, 6],
        "model": ["standard", "linear"],
        "model.dim": [8, 16, 24, 32, 40],
        "seed": list(range(max(1, count // 100))),
    }
    base = ["recipe=quick", "data=quick", "logger=none"]
    return experiment_from("trivial", {"description": "made up", "base": base, "grid": [grid]})


def measure(experiment: Experiment) -> dict[str, Any]:
    """Return the figures of one sweep over ``experiment`` in the current folder."""
    sweep, planning = timed(lambda: Sweep(experiment))
    plan, standing = timed(sweep.plan)
    _, dry_run = timed(lambda: silently(lambda: print_whole(sweep)))
    memory: list[float] = []
    launcher = OneAfterAnother({p.cell.overrides: p.cell.config for p in plan}, memory)
    _, running = timed(lambda: silently(lambda: watched(sweep, plan, launcher)))
    table, entering = timed(sweep.enter)
    again, standing_again = timed(sweep.plan)
    records = {str(row["cell"]): row for _, row in table.iterrows()}
    _, summary = timed(lambda: silently(lambda: print_summary(again, records)))
    assert len(table) == len(plan) and all(planned.status == "done" for planned in again)
    return {
        "cells": len(plan),
        "planning, seconds": planning + standing,
        "of which how each cell stands": standing,
        "printing the plan, seconds": dry_run,
        "bookkeeping, seconds per cell": running / len(plan),
        "planning again when all are done, seconds": standing_again,
        "entering all records again, seconds": entering,
        "summary, seconds": summary,
        "memory after a tenth, MB": memory[len(memory) // 10],
        "memory at the end, MB": memory[-1],
    }


def timed(what: Callable[[], Any]) -> tuple[Any, float]:
    """Return what ``what`` returns, and the CPU seconds that it took."""
    started = time.process_time()
    return what(), time.process_time() - started


def silently(what: Callable[[], Any]) -> None:
    """Call ``what`` and throw away what it prints."""
    with contextlib.redirect_stdout(io.StringIO()):
        what()


def print_whole(sweep: Sweep) -> None:
    """Do what ``dry_run=true`` does."""
    print_plan(sweep.plan(), CostEstimate(sweep.table()))


def watched(sweep: Sweep, plan: list[Planned], launcher: OneAfterAnother) -> None:
    """Launch everything under a watcher that merges records as they come."""
    with Watcher(sweep, plan), made_up_cells():
        launch(launcher, plan)


class OneAfterAnother:
    """A launcher that runs every job in this process and notes the resident memory."""

    def __init__(self, configs: dict[tuple[str, ...], CellConfig], memory: list[float]) -> None:
        self.configs = configs
        self.memory = memory

    def launch(self, jobs: Sequence[Sequence[str]], first: int) -> list[Any]:
        """Run the jobs; the cells come from the plan, since no Hydra composes them here."""
        results = []
        for overrides in tqdm(jobs, desc="cells", disable=None):
            cell_module.run_cell(self.configs[tuple(overrides)])
            results.append(JobReturn(status=JobStatus.COMPLETED))
            self.memory.append(resident_megabytes())
        return results


@contextlib.contextmanager
def made_up_cells() -> Iterator[None]:
    """Replace training and evaluation by figures made up at once."""

    def figures(config: Any, task: Any, cell: Any, *others: Any) -> dict[str, Any]:
        cell.write_progress(step=1, steps=1)
        write_text(cell.folder / "curve.csv", "step,seconds\n1,0.1\n")
        write_text(cell.folder / "errors.json", "{}\n")
        share = (config.seed % 100) / 100
        accuracy = dict.fromkeys(("", "_low", "_high"), share)
        return {
            "status": "done",
            "stopped": "budget",
            **{f"answer_accuracy{end}": value for end, value in accuracy.items()},
            "chain_exact_match": share / 3,
            "steps": 1,
            "n_test": 100,
            **dict.fromkeys(("flops_linear_layers", "flops_total", "flops_training"), 10**9),
            "train_seconds": 0.1,
            "eval_seconds": 0.1,
        }

    with mock.patch.object(cell_module, "_measured", figures):
        yield


def resident_megabytes() -> float:
    """Return the memory that this process occupies."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
