"""How fast the GPU trains and evaluates, and how many small cells fill it.

    python -m benchmarks.gpu.speed --out out/speed/1
    python -m benchmarks.gpu.speed --out out/speed/2 --from out/speed/1

matmul    the ceilings: a large product of matrices in bfloat16 and in float32
train     tokens/s of whole updates (forward, backward, optimiser) and the share of the ceiling, for
          each model, D, L and setting: `wide` (batch 512, bfloat16, AdamW), `long` (recipe long:
          batch 64, bfloat16, Muon, averaged weights) and `paper` (recipe paper: batch 512,
          float32, AdamW, dropout).
          Every sequence is L long, three quarters of it count in the loss.
          eager as the trainer runs it; graph: forward and backward captured as one CUDA graph;
          compiled: torch.compile; reduce-overhead: that with its own CUDA graphs. Where a batch
          does not fit, it is halved until it does, and the row says so.
side      tokens/s of k processes at once, each training a cell of its own by `long`, eagerly
evaluate  certified evaluation of --sequences Arithmetic sequences: of an untrained model, which
          generates everything, and of the very sequences it writes, which generates nothing; a
          trained model lies between. Extrapolated to 100,000, and called so.

What is cheap and told most about comes first; call again with --from until nothing is missing.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.gpu.shared import MIXERS, Clock, Record, Row, call, parser, print_table, run_cases
from errors import RunError, UserError
from evaluation.generation import generate
from evaluation.memory import memory_for
from models.flops import training_step_flops
from models.transformer import Transformer
from tasks.arithmetic import Arithmetic
from tasks.task import SequenceSet
from training.average import MovingAverage
from training.batches import Batch, SequenceTensors
from training.loss import masked_loss
from training.optimizers import build_optimizer
from training.precision import autocast
from training.recipe import Recipe

VOCABULARY = 32
DIMS = [32, 64, 128, 256, 512, 1024]
LENGTHS = [87, 221, 355, 505]
OPERATORS = {87: 6, 221: 10, 355: 13, 505: 16}
MODES = ["eager", "graph", "reduce-overhead", "compiled"]
SIDE_BY_SIDE = [1, 2, 4, 8, 16]
SIDE_DIMS = [32, 64, 128, 256]
SIDE_LENGTH = 221
SIDE_SECONDS = 3.0
SIDE_STEPS = 10  # between two looks at the clock, for which the host waits
WARM_UP, LEAST_STEPS, LEAST_SECONDS, MOST_SECONDS = 3, 5, 0.4, 4.0
COMPILE_SECONDS = 60.0
MATMUL = {"cuda": (8192, 30), "cpu": (512, 5)}


@dataclass(frozen=True)
class Setting:
    """What decides a step's speed besides the model: the recipe and its number format."""

    recipe: Recipe
    precision: str


SETTINGS = {
    "wide": Setting(Recipe("wide", 1e-3, 512, steps=1), "bfloat16"),
    "long": Setting(
        Recipe(
            "long",
            1e-2,
            64,
            steps=1,
            optimizer="muon",
            betas=[0.9, 0.95],
            gradient_clip=1.0,
            average_decay=0.99,
        ),
        "bfloat16",
    ),
    "paper": Setting(Recipe("paper", 1e-4, 512, steps=1, dropout=0.1), "float32"),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Measure what is missing, write speed.json, print the table."""
    options = arguments(argv)
    clock = Clock(options.minutes)
    given = [folder / "speed.json" for folder in options.given]
    record = Record(options.out / "speed.json", given, options.device)
    missing = run_cases(record, quick_cases(options), clock, reserve=20)
    missing += run_cases(record, compile_cases(options), clock, reserve=20 + COMPILE_SECONDS)
    print_rows(record)
    print(f"{record.about['device']}: {len(record.rows)} rows, {missing} still missing")


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    result = parser(__doc__, "speed")
    add = result.add_argument
    add("--models", nargs="+", default=list(MIXERS), choices=list(MIXERS))
    add("--dims", nargs="+", type=int, default=DIMS)
    add("--lengths", nargs="+", type=int, default=LENGTHS, choices=LENGTHS)
    add("--settings", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    add("--modes", nargs="+", default=MODES, choices=MODES)
    add("--side", nargs="*", type=int, default=SIDE_BY_SIDE, help="processes at once")
    add("--sequences", type=int, default=2000, help="evaluated; 0: leave evaluation out")
    add("--batch", type=int, help="instead of the setting's, to try the script")
    options = result.parse_args(argv)
    if any(dim % 8 for dim in options.dims):
        raise UserError(f"--dims {options.dims}: each must be divisible by 8")
    return options


def quick_cases(options: argparse.Namespace) -> dict[str, Callable[[], Row]]:
    """Return all that needs no compilation: ceilings, eager, side by side, graphs, evaluation."""
    device = options.device
    found: dict[str, Callable[[], Row]] = {
        f"matmul {precision}": functools.partial(matmul, precision, device)
        for precision in ("bfloat16", "float32")
    }
    found |= train_cases(options, "eager")
    for dim in sorted(set(options.dims) & set(SIDE_DIMS)):
        for count in options.side:
            key = f"side {dim} x{count}"
            found[key] = functools.partial(side_by_side, dim, count, options.batch, device)
    if options.sequences:
        for model, dim, length in shapes(options):
            found[f"evaluate {model} D={dim} L={length}"] = functools.partial(
                evaluation, model, dim, length, options.sequences, device
            )
    return found | train_cases(options, "graph")


def compile_cases(options: argparse.Namespace) -> dict[str, Callable[[], Row]]:
    """Return the cases that compile first, a minute or so each."""
    return train_cases(options, "reduce-overhead") | train_cases(options, "compiled")


def train_cases(options: argparse.Namespace, mode: str) -> dict[str, Callable[[], Row]]:
    """Return the training cases of one mode; none when it is not asked for or not possible."""
    possible = mode == "eager" or mode == "compiled" or options.device.type == "cuda"
    if mode not in options.modes or not possible:
        return {}
    return {
        f"train {name} {mode} {model} D={dim} L={length}": functools.partial(
            training, name, mode, model, dim, length, options.batch, options.device
        )
        for name in options.settings
        for model, dim, length in shapes(options)
    }


def shapes(options: argparse.Namespace) -> Iterator[tuple[str, int, int]]:
    """Yield (model, D, L), the middle widths first: the frontier lies there."""
    middle_first = sorted(options.dims, key=lambda dim: (abs(dim.bit_length() - 8), dim))
    for dim in middle_first:
        for length in options.lengths:
            for model in options.models:
                yield model, dim, length


def matmul(precision: str, device: torch.device) -> Row:
    """Return TFLOP/s of one large square product on random data, the median of some."""
    size, repeats = MATMUL[device.type]
    a, b = (torch.randn(size, size, device=device, dtype=getattr(torch, precision)) for _ in "ab")
    taken = [timed(lambda: a @ b, device) for _ in range(repeats + WARM_UP)][WARM_UP:]
    rate = 2 * size**3 / statistics.median(taken) / 1e12
    return {"kind": "matmul", "precision": precision, "size": size, "tflops": rate}


def timed(action: Callable[[], object], device: torch.device) -> float:
    """Return the seconds until what ``action`` started on the device is done."""
    synchronise(device)
    started = time.perf_counter()
    action()
    synchronise(device)
    return time.perf_counter() - started


def synchronise(device: torch.device) -> None:
    """Wait for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def training(
    name: str,
    mode: str,
    model: str,
    dim: int,
    length: int,
    batch: int | None,
    device: torch.device,
) -> Row:
    """Return tokens/s of training, at the largest halving of the batch that fits."""
    setting = SETTINGS[name]
    wanted = size = batch or setting.recipe.batch_size
    net = build(model, dim, length, setting.recipe.dropout, device)
    while True:
        try:
            seconds, steps = seconds_per_step(net, setting, mode, size, length, device)
            break
        except torch.OutOfMemoryError:
            if size < 16:
                raise
            size //= 2
        finally:
            release(net)
    flops = size * training_step_flops(net.flops(length))
    return {
        "kind": "train", "setting": name, "mode": mode, "model": model, "dim": dim,
        "length": length, "batch": size, "batch_wanted": wanted, "steps_timed": steps,
        "precision": setting.precision, "seconds_per_step": seconds,
        "tokens_per_second": size * length / seconds, "tflops": flops / seconds / 1e12,
    }  # fmt: skip


def release(net: Transformer) -> None:
    """Give memory back between cases, the gradients and compiled code of ``net`` included."""
    net.zero_grad(set_to_none=True)
    torch.compiler.reset()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def build(
    model: str, dim: int, length: int, dropout: float, device: torch.device, vocabulary: int = 0
) -> Transformer:
    """Return a three-layer model on the device."""
    torch.manual_seed(0)
    size = vocabulary or VOCABULARY
    return Transformer(size, length, dim, 3, 4, MIXERS[model], dropout).to(device)


def seconds_per_step(
    net: Transformer, setting: Setting, mode: str, size: int, length: int, device: torch.device
) -> tuple[float, int]:
    """Return (seconds of one update, updates timed) after a warm-up."""
    step = stepper(net, setting, mode, made_up(4 * size, length, device), size, device)
    for number in range(WARM_UP):
        step(number)
    return timed_for(step, device, LEAST_SECONDS)


def timed_for(
    step: Callable[[int], None], device: torch.device, seconds: float
) -> tuple[float, int]:
    """Repeat ``step`` for about ``seconds``; return (seconds of one, how many)."""
    once = timed(lambda: step(0), device)
    count = int(min(max(LEAST_STEPS, seconds / once), max(1.0, MOST_SECONDS / once)))

    def run() -> None:
        for number in range(count):
            step(number)

    return timed(run, device) / count, count


def made_up(count: int, length: int, device: torch.device) -> SequenceTensors:
    """Return ``count`` random sequences of ``length`` + 1 tokens, a quarter of each prompt."""
    tokens = torch.randint(2, VOCABULARY, (count, length + 1)).numpy().astype("uint8")
    full = torch.full((count,), length + 1).numpy()
    return SequenceTensors(SequenceSet(tokens, full, full // 4), device)


def stepper(
    net: Transformer,
    setting: Setting,
    mode: str,
    sequences: SequenceTensors,
    size: int,
    device: torch.device,
) -> Callable[[int], None]:
    """Return a function that makes one whole update."""
    net.train()
    optimizer = build_optimizer(net, setting.recipe, setting.precision)
    optimizer.set_learning_rate(1e-4)
    decay = setting.recipe.average_decay
    average = None if decay is None else MovingAverage(net, decay)
    batches = [torch.arange(i * size, (i + 1) * size) for i in range(4)]  # on the host
    backward = BACKWARD[mode](net, setting.precision, sequences.batch(batches[0]), device)

    def step(number: int) -> None:
        backward(sequences.batch(batches[number % 4]))
        if setting.recipe.gradient_clip is not None:
            torch.nn.utils.clip_grad_norm_(net.parameters(), setting.recipe.gradient_clip)
        optimizer.step()
        if average is not None:
            average.update(net, first=number == 0)

    return step


Backward = Callable[[Batch], None]


def eager(net: Transformer, precision: str, example: Batch, device: torch.device) -> Backward:
    """The trainer's way: gradients are forgotten, the head runs where the loss counts."""

    def backward(batch: Batch) -> None:
        net.zero_grad(set_to_none=True)
        with autocast(precision, device):
            loss = masked_loss(net, batch)
        loss.backward()

    return backward


def static_loss(net: Transformer, tokens: Tensor, mask: Tensor) -> Tensor:
    """The same loss in shapes that do not depend on the mask: logits at every position."""
    targets = tokens[:, 1:].masked_fill(~mask, -100)
    logits = net(tokens[:, :-1]).float()
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def compiled(
    net: Transformer, precision: str, example: Batch, device: torch.device, how: str = "default"
) -> Backward:
    """`static_loss` under torch.compile."""

    @torch.compile(dynamic=False, mode=how)
    def loss_of(tokens: Tensor, mask: Tensor) -> Tensor:
        return static_loss(net, tokens, mask)

    def backward(batch: Batch) -> None:
        net.zero_grad(set_to_none=True)
        with autocast(precision, device):
            loss = loss_of(batch.tokens, batch.loss_mask)
        loss.backward()

    return backward


def graph(net: Transformer, precision: str, example: Batch, device: torch.device) -> Backward:
    """`static_loss` and its backward captured once; each step copies its batch in and replays."""
    tokens, mask = example.tokens.clone(), example.loss_mask.clone()

    def run() -> None:
        net.zero_grad(set_to_none=False)
        # The cache of cast weights would outlive the capture.
        with torch.autocast("cuda", torch.bfloat16, precision == "bfloat16", cache_enabled=False):
            loss = static_loss(net, tokens, mask)
        loss.backward()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            run()
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        run()

    def backward(batch: Batch) -> None:
        tokens.copy_(batch.tokens)
        mask.copy_(batch.loss_mask)
        captured.replay()

    return backward


BACKWARD: dict[str, Callable[..., Backward]] = {
    "eager": eager,
    "graph": graph,
    "compiled": compiled,
    "reduce-overhead": functools.partial(compiled, how="reduce-overhead"),
}


def side_by_side(dim: int, count: int, batch: int | None, device: torch.device) -> Row:
    """Return tokens/s of ``count`` processes that train at once, all together."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(count), context.Queue()
    arguments = (dim, batch, str(device), barrier, results)
    processes = [context.Process(target=_train_beside, args=arguments) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        rates = [results.get(timeout=240) for _ in processes]
    finally:
        for process in processes:
            process.join(timeout=5)
            process.kill()
    if any(isinstance(rate, str) for rate in rates):
        raise RunError(next(rate for rate in rates if isinstance(rate, str)))
    return {
        "kind": "side", "model": "standard", "dim": dim, "length": SIDE_LENGTH,
        "setting": "long", "mode": "eager", "processes": count, "tokens_per_second": sum(rates),
    }  # fmt: skip


def _train_beside(
    dim: int, batch: int | None, device_name: str, barrier: Any, results: Any
) -> None:
    """Train until the common stretch of time is over; put this process's tokens/s."""
    torch.set_num_threads(1)
    device, setting = torch.device(device_name), SETTINGS["long"]
    size = batch or setting.recipe.batch_size
    try:
        net = build("standard", dim, SIDE_LENGTH, 0.0, device)
        data = made_up(4 * size, SIDE_LENGTH, device)
        step = stepper(net, setting, "eager", data, size, device)
        for number in range(WARM_UP):
            step(number)
        synchronise(device)
        barrier.wait(timeout=200)
        started, steps = time.perf_counter(), 0
        while time.perf_counter() - started < SIDE_SECONDS:
            for _ in range(SIDE_STEPS):
                step(steps)
                steps += 1
            synchronise(device)
        results.put(steps * size * SIDE_LENGTH / (time.perf_counter() - started))
    except Exception as error:
        barrier.abort()
        results.put(f"{type(error).__name__}: {error}")


def evaluation(model: str, dim: int, length: int, count: int, device: torch.device) -> Row:
    """Return seconds of generating everything and of generating nothing."""
    task = Arithmetic(OPERATORS[length])
    net = build(model, dim, task.max_len, 0.0, device, len(task.vocabulary)).eval()
    sequences = task.draw(0, 0, 0, count)
    memory_mb = memory_for("auto", device)
    generate(net, sequences.select(slice(0, 8)), memory_mb, device)  # warm up
    results = []
    seconds = timed(lambda: results.append(generate(net, sequences, memory_mb, device)), device)
    own = SequenceSet(results[0].tokens, results[0].lengths, sequences.prompt_lengths)
    certifying = timed(lambda: results.append(generate(net, own, memory_mb, device)), device)
    return {
        "kind": "evaluate", "model": model, "dim": dim, "length": length, "sequences": count,
        "max_len": task.max_len, "memory_mb": memory_mb, "close_calls": results[0].close_calls,
        "generated": count - results[0].certified, "seconds": seconds,
        "generated_of_own": count - results[1].certified, "certifying_seconds": certifying,
        "extrapolated_to_100000_seconds": 1e5 / count * seconds,
        "extrapolated_to_100000_certifying_seconds": 1e5 / count * certifying,
    }  # fmt: skip


def print_rows(record: Record) -> None:
    """Print every row that was measured, by kind."""
    done = [row for row in record.rows.values() if row["status"] == "done"]
    ceilings = {row["precision"]: row["tflops"] for row in done if row["kind"] == "matmul"}
    print_table([[name, rate] for name, rate in ceilings.items()], ["matmul", "TFLOP/s"])
    rows = [
        [
            *(row[column] for column in ("setting", "mode", "model", "dim", "length", "batch")),
            row["tokens_per_second"],
            row["tflops"] / ceilings[row["precision"]] if row["precision"] in ceilings else None,
        ]
        for row in done
        if row["kind"] == "train"
    ]
    print_table(rows, ["setting", "mode", "model", "D", "L", "batch", "tokens/s", "of ceiling"])
    columns = ["dim", "processes", "tokens_per_second"]
    side = [[row[column] for column in columns] for row in done if row["kind"] == "side"]
    print_table(side, ["D", "side by side", "tokens/s"])
    columns = [
        "model", "dim", "length", "sequences", "extrapolated_to_100000_seconds",
        "extrapolated_to_100000_certifying_seconds",
    ]  # fmt: skip
    slow = [[row[column] for column in columns] for row in done if row["kind"] == "evaluate"]
    header = ["model", "D", "L", "sequences", "100,000 generated, s", "certified, s"]
    print_table(slow, [*header[:4], *(f"{name} (extrapolated)" for name in header[4:])])


if __name__ == "__main__":
    call(main)
