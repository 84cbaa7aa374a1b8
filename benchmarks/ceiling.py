"""How fast training is on a device, as a share of what its matrix products allow.

    python -m benchmarks ceiling device=cuda
    python -m benchmarks ceiling device=cuda compile=graphs dims=32,64 lengths=87 recipes=fast

For each recipe, model, D, L and way of compiling: tokens/s of the trainer's whole update, and its
TFLOP/s over those of one large square product in the same precision.  Every sequence is L long,
three quarters of it count in the loss.  A batch that does not fit is halved until it does, and
the row says so.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from benchmarks.shared.cells import MODELS, build_model, cell_config, training_step
from benchmarks.shared.report import (
    RECORDS,
    print_table,
    read_options,
    require_among,
    write_record,
)
from benchmarks.shared.timing import in_turns, seconds_of
from benchmarks.training import COMPILE
from models.flops import training_step_flops
from models.transformer import Transformer
from tasks.task import SequenceSet
from training.precision import resolve_device, resolve_precision
from training.recipe import Recipe

VOCABULARY = 32
WARM_UP, LEAST_STEPS = 3, 5
MATMUL = {"cuda": (8192, 30), "cpu": (1024, 10)}  # size of the product, repeats


@dataclass
class Options:
    """What the command line may set."""

    device: str = "cpu"
    compile: list[str] = field(default_factory=lambda: ["false"])
    models: list[str] = field(default_factory=lambda: list(MODELS))
    dims: list[int] = field(default_factory=lambda: [32, 64, 128, 256, 512, 1024])
    lengths: list[int] = field(default_factory=lambda: [87, 221, 355, 505])
    recipes: list[str] = field(default_factory=lambda: ["fast", "paper"])
    batch: int | None = None  # instead of the recipe's
    seconds: float = 1.0  # about so long each
    record: Path = RECORDS / "ceiling.json"


def main(words: Sequence[str] | None = None) -> None:
    """Measure, print the table, write the record."""
    options = read_options(Options, words)
    ways = [way.lower() for way in options.compile]
    require_among("compile", ways, COMPILE)
    require_among("models", options.models, MODELS)
    torch.set_num_threads(1)
    device = resolve_device(options.device)
    recipes = {name: cell_config(f"recipe={name}").recipe for name in options.recipes}
    rates = {name: matmul_tflops(name, device) for name in ("float32", "bfloat16")}
    axes = (recipes, ways, options.dims, options.lengths, options.models)
    rows = [
        measure(recipes[recipe], COMPILE[way], model, dim, length, options, device, rates)
        for recipe, way, dim, length, model in tqdm(
            list(itertools.product(*axes)), unit="setting", disable=None
        )
    ]
    print_rows(rows, rates)
    write_record(options.record, {"matmul_tflops": rates, "rows": rows}, device)


def matmul_tflops(precision: str, device: torch.device) -> float:
    """Return TFLOP/s of one large square product on random data, the median of some."""
    size, repeats = MATMUL[device.type]
    a, b = (torch.randn(size, size, device=device, dtype=getattr(torch, precision)) for _ in "ab")
    seconds = in_turns({"product": lambda: a @ b}, repeats, device, WARM_UP)["product"]
    return 2 * size**3 / statistics.median(seconds) / 1e12


def measure(
    recipe: Recipe,
    compile: bool | str,
    model: str,
    dim: int,
    length: int,
    options: Options,
    device: torch.device,
    rates: dict[str, float],
) -> dict[str, Any]:
    """Return tokens/s of training, at the largest halving of the batch that fits."""
    wanted = options.batch or recipe.batch_size
    net = build_model(model, VOCABULARY, length, dim, recipe.dropout).to(device)
    size, seconds = largest_that_fits(
        wanted, lambda size: seconds_a_step(net, recipe, size, length, compile, options.seconds)
    )
    net.zero_grad(set_to_none=True)
    precision = resolve_precision(recipe.precision, device, dim)
    tflops = size * training_step_flops(net.flops(length)) / seconds / 1e12
    return {
        "recipe": recipe.name, "compile": compile, "model": model, "dim": dim, "length": length,
        "batch": size, "batch_wanted": wanted, "precision": precision,
        "seconds_per_step": seconds, "tokens_per_second": size * length / seconds,
        "tflops": tflops, "share_of_ceiling": tflops / rates[precision],
    }  # fmt: skip


def largest_that_fits(wanted: int, attempt: Callable[[int], float]) -> tuple[int, float]:
    """Return the largest halving of ``wanted`` (8 at least) at which ``attempt`` does not run out
    of memory, and what it returns there."""
    size = wanted
    while True:
        try:
            return size, attempt(size)
        except torch.OutOfMemoryError:
            if size < 16:
                raise
            size //= 2
        finally:
            torch.compiler.reset()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()


def seconds_a_step(
    net: Transformer, recipe: Recipe, size: int, length: int, compile: bool | str, seconds: float
) -> float:
    """Return the seconds of one update, over about ``seconds`` after a warm-up."""
    step = endless_step(net, recipe, size, length, compile)
    device = net.head.weight.device
    repeat(step, WARM_UP)
    once = seconds_of(step, device)
    count = max(LEAST_STEPS, round(seconds / once))
    return seconds_of(functools.partial(repeat, step, count), device) / count


def endless_step(
    net: Transformer, recipe: Recipe, size: int, length: int, compile: bool | str = False
) -> Callable[[], None]:
    """Return the trainer's step on random sequences, with a budget that does not end."""
    endless = dataclasses.replace(recipe, batch_size=size, steps=10**9, epochs=None)
    return training_step(net, endless, random_sequences(4 * size, length), compile)


def repeat(step: Callable[[], None], count: int) -> None:
    """Make ``count`` steps."""
    for _ in range(count):
        step()


def random_sequences(count: int, length: int) -> SequenceSet:
    """Return ``count`` random sequences of ``length`` + 1 tokens, a quarter of each prompt."""
    tokens = torch.randint(2, VOCABULARY, (count, length + 1)).numpy().astype("uint8")
    full = torch.full((count,), length + 1).numpy()
    return SequenceSet(tokens, full, full // 4)


def print_rows(rows: list[dict[str, Any]], rates: dict[str, float]) -> None:
    """Print every row and the ceilings."""
    keys = ["recipe", "compile", "model", "dim", "length", "batch", "tokens_per_second"]
    header = ["recipe", "compile", "model", "D", "L", "batch", "tokens/s", "of ceiling"]
    table = [[row[key] for key in [*keys, "share_of_ceiling"]] for row in rows]
    print_table("Training", header, table)
    print_table("Ceiling", ["one product", "TFLOP/s"], rates.items())
