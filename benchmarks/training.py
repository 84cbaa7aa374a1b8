"""The trainer's step against a plain one, and mixer against mixer.

    python -m benchmarks training [device=cuda] [compile=graphs]

Plain: the module of `shared/plain.py`, every sequence padded to L.  Ours: the same function as the
trainer runs it, with all that it does in a step.  Both see the same Arithmetic sequences in batches
of 64 and update by AdamW.  Medians of seconds taken in turns (`shared/timing.py`).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from benchmarks.shared.cells import MIXERS, build_model, training_mixture, training_step
from benchmarks.shared.plain import PlainTransformer, plain_step
from benchmarks.shared.report import (
    RECORDS,
    print_table,
    read_options,
    require_among,
    write_record,
)
from benchmarks.shared.timing import in_turns
from tasks.arithmetic import Arithmetic
from training.precision import resolve_device, resolve_precision
from training.recipe import Recipe

SETTINGS = [(6, 64, 0.1), (10, 128, 0.1), (10, 256, 0.1), (10, 128, 0.0), (10, 256, 0.0)]
MIXER_SETTING = (16, (64, 128))  # operators, and the widths D at which mixers are compared
BATCH = 64
COMPILE: dict[str, bool | str] = {"false": False, "true": True, "graphs": "graphs"}


@dataclass
class Options:
    """What the command line may set."""

    device: str = "cpu"
    compile: str = "false"  # or true, graphs
    threads: int = 1
    repeats: int = 5
    record: Path = RECORDS / "training.json"


def main(words: Sequence[str] | None = None) -> None:
    """Measure, print the tables, write the record."""
    options = read_options(Options, words)
    require_among("compile", [options.compile.lower()], COMPILE)
    torch.set_num_threads(options.threads)
    device = resolve_device(options.device)
    compile = COMPILE[options.compile.lower()]
    rows = [
        measure_against_plain(operators, dim, dropout, options.repeats, device, compile)
        for operators, dim, dropout in tqdm(SETTINGS, unit="setting", disable=None)
    ]
    operators, dims = MIXER_SETTING
    mixers = [measure_mixers(operators, dim, options.repeats, device, compile) for dim in dims]
    print_tables(rows, mixers)
    record = {"compile": compile, "against_plain": rows, "mixers": mixers}
    write_record(options.record, record, device)


def measure_against_plain(
    operators: int,
    dim: int,
    dropout: float,
    repeats: int,
    device: torch.device,
    compile: bool | str,
) -> dict[str, Any]:
    """Return median milliseconds a step of the plain module and of ours."""
    task = Arithmetic(operators)
    plain = PlainTransformer(len(task.vocabulary), task.max_len, dim, dropout).to(device)
    data = training_mixture(task, 40 * BATCH)
    ours = our_step("standard", task, dim, dropout, device, compile)
    found = milliseconds({"plain": plain_step(plain, data, BATCH), "ours": ours}, repeats, device)
    return {
        "operators": operators,
        "max_len": task.max_len,
        "dim": dim,
        "dropout": dropout,
        "precision": resolve_precision("auto", device, dim),
        "plain_ms": found["plain"],
        "ours_ms": found["ours"],
        "ratio": found["plain"] / found["ours"],
    }


def measure_mixers(
    operators: int, dim: int, repeats: int, device: torch.device, compile: bool | str
) -> dict[str, Any]:
    """Return median milliseconds of our step for each mixer."""
    task = Arithmetic(operators)
    steps = {name: our_step(name, task, dim, 0.0, device, compile) for name in MIXERS}
    precision = resolve_precision("auto", device, dim)
    found = milliseconds(steps, repeats, device)
    return {"dim": dim, "max_len": task.max_len, "precision": precision, **found}


def our_step(
    name: str,
    task: Arithmetic,
    dim: int,
    dropout: float,
    device: torch.device,
    compile: bool | str,
) -> Callable[[], None]:
    """Return the trainer's step by a plain AdamW recipe."""
    recipe = Recipe("benchmark", 1e-4, BATCH, steps=10**6, dropout=dropout)
    model = build_model(name, len(task.vocabulary), task.max_len, dim, dropout).to(device)
    return training_step(model, recipe, training_mixture(task, 40 * BATCH), compile)


def milliseconds(
    steps: dict[str, Callable[[], None]], repeats: int, device: torch.device
) -> dict[str, float]:
    """Return the median milliseconds of each step, taken in turns."""
    taken = in_turns(steps, repeats, device, warm_up=2)
    return {name: 1000 * statistics.median(seconds) for name, seconds in taken.items()}


def print_tables(rows: list[dict[str, Any]], mixers: list[dict[str, Any]]) -> None:
    """Print milliseconds a step and ratios."""
    keys = ["dim", "max_len", "dropout", "precision", "plain_ms", "ours_ms", "ratio"]
    header = ["D", "L", "dropout", "precision", "plain ms", "ours ms", "plain / ours"]
    print_table("Against a plain module", header, [[row[key] for key in keys] for row in rows])
    keys = ["dim", "max_len", *MIXERS]
    header = ["D", "L", *(f"{name} ms" for name in MIXERS)]
    print_table("Mixers", header, [[row[key] for key in keys] for row in mixers])
