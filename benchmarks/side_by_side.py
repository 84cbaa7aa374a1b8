"""How many small cells fill a device: tokens/s of k processes that train at once.

    python -m benchmarks side_by_side device=cuda processes=1,2,4,8,16

Each process trains a standard model of its own by ``recipe``, with one thread, uncompiled, on
sequences of 221 tokens; all measure over the same stretch of time.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.ceiling import VOCABULARY, WARM_UP, endless_step, repeat
from benchmarks.shared.cells import build_model, cell_config
from benchmarks.shared.report import RECORDS, print_table, read_options, write_record
from benchmarks.shared.timing import seconds_of
from common import RunError
from training.precision import resolve_device

STEPS = 10  # between two looks at the clock
START_SECONDS = 240


@dataclass
class Options:
    """What the command line may set."""

    device: str = "cpu"
    processes: list[int] = field(default_factory=lambda: [1, 2])
    dims: list[int] = field(default_factory=lambda: [32, 64, 128, 256])
    length: int = 221
    recipe: str = "fast"
    batch: int | None = None  # instead of the recipe's
    seconds: float = 3.0
    record: Path = RECORDS / "side_by_side.json"


def main(words: Sequence[str] | None = None) -> None:
    """Measure, print the table, write the record."""
    options = read_options(Options, words)
    device = resolve_device(options.device)
    rows = [
        [dim, count, tokens_per_second(dim, count, options)]
        for dim in options.dims
        for count in options.processes
    ]
    print_table("Side by side", ["D", "processes", "tokens/s"], rows)
    keys = ("dim", "processes", "tokens_per_second")
    named = [dict(zip(keys, row, strict=True)) for row in rows]
    record = {"recipe": options.recipe, "length": options.length, "rows": named}
    write_record(options.record, record, device)


def tokens_per_second(dim: int, count: int, options: Options) -> float:
    """Return the tokens/s of ``count`` processes together."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(count), context.Queue()
    arguments = (dim, options, barrier, results)
    processes = [context.Process(target=_train, args=arguments) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        rates = [results.get(timeout=START_SECONDS + 60) for _ in processes]
    finally:
        for process in processes:
            process.join(timeout=5)
            process.kill()
    failures = [rate for rate in rates if isinstance(rate, str)]
    if failures:
        raise RunError(f"D={dim}, {count} processes: {failures[0]}")
    return sum(rates)


def _train(dim: int, options: Options, barrier: Any, results: Any) -> None:
    """Train until the common stretch of time is over; put this process's tokens/s."""
    try:
        torch.set_num_threads(1)
        device = resolve_device(options.device)
        recipe = cell_config(f"recipe={options.recipe}").recipe
        size = options.batch or recipe.batch_size
        net = build_model("standard", VOCABULARY, options.length, dim, recipe.dropout).to(device)
        step = endless_step(net, recipe, size, options.length)
        repeat(step, WARM_UP)
        barrier.wait(timeout=START_SECONDS)
        begun, steps = time.perf_counter(), 0
        while time.perf_counter() - begun < options.seconds:
            seconds_of(lambda: repeat(step, STEPS), device)  # until the device is done
            steps += STEPS
        results.put(steps * size * options.length / (time.perf_counter() - begun))
    except Exception as error:
        barrier.abort()
        results.put(f"{type(error).__name__}: {error}")
