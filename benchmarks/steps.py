"""What a training step costs with every model of conf/model, beside standard attention's.

    python -m benchmarks steps                  # all but tensor, whose time is cubic in L
    python -m benchmarks steps models=gla,mamba2 dim=64 size=6

The trainer's whole step (forward, backward, `fast`'s optimiser) on Arithmetic of 10 operators,
L = 221, D = 128, batch 64, one thread.  All models take turns; the ratio is that of medians.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from config.build import build_task, initial_model
from config.compose import CONF_DIR

from benchmarks.shared.cells import CPU, cell_config, training_mixture, training_step
from benchmarks.shared.report import (
    RECORDS,
    print_table,
    read_options,
    require_among,
    write_record,
)
from benchmarks.shared.timing import in_turns

KNOWN = sorted(path.stem for path in (CONF_DIR / "model").glob("*.yaml"))


@dataclass
class Options:
    """What the command line may set."""

    models: list[str] = field(default_factory=lambda: [n for n in KNOWN if n != "tensor"])
    size: int = 10  # operators
    dim: int = 128
    repeats: int = 9
    record: Path = RECORDS / "steps.json"


def main(words: Sequence[str] | None = None) -> None:
    """Time the steps in turns; print and write milliseconds and ratios."""
    options = read_options(Options, words)
    require_among("models", options.models, KNOWN)
    torch.set_num_threads(1)
    names = ["standard", *(name for name in options.models if name != "standard")]
    steps = {name: step_of(name, options.size, options.dim) for name in names}
    taken = in_turns(steps, options.repeats, warm_up=2)
    medians = {name: statistics.median(seconds) for name, seconds in taken.items()}
    ratios = {name: seconds / medians["standard"] for name, seconds in medians.items()}
    quickest_first = sorted(medians, key=medians.__getitem__)
    table = [[name, 1000 * medians[name], ratios[name]] for name in quickest_first]
    print_table("A training step", ["model", "ms", "/ standard"], table)
    setting = {"operators": options.size, "dim": options.dim, "repeats": options.repeats}
    rows = [
        {"model": name, "seconds": medians[name], "ratio": ratios[name]} for name in quickest_first
    ]
    write_record(options.record, {**setting, "rows": rows})


def step_of(name: str, size: int, dim: int) -> Callable[[], None]:
    """Return the trainer's next step with the model of conf/model/NAME.yaml."""
    config = cell_config(f"model={name} model.dim={dim} task=arithmetic task.size={size}")
    task = build_task(config.task)
    data = training_mixture(task, 40 * config.recipe.batch_size)
    return training_step(initial_model(config, task, CPU), config.recipe, data)
