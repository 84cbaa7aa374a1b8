"""Is a device right? Fast forms against plain references in float64 on the CPU.

    python -m benchmarks check device=cuda [compile=true]

attention    output and gradients of every fast form against models/reference/, in float32 and
             bfloat16, at lengths on and off block boundaries
model        loss and gradients of the whole model, as trained
compiled     the same of the model under torch.compile (compile=true; a minute a model)
generation   cached generation against a full forward pass for every token
evaluation   certified evaluation against greedy decoding token by token
twice        a cell trained twice, and a third time interrupted half-way

Errors are relative to the largest magnitude.  Exit status 1 when one exceeds its tolerance or is
not finite.  What "twice" and "interrupted" find is told, not judged: on a GPU some gradients are
summed in changing order.
"""

from __future__ import annotations

import functools
import math
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from benchmarks.shared import against_reference as against
from benchmarks.shared.cells import MIXERS
from benchmarks.shared.report import RECORDS, print_table, read_options, write_record
from common import RunError
from tasks.arithmetic import Arithmetic
from training.precision import resolve_device

LENGTHS = [7, 8, 63, 221]
HEAD_DIMS = [8, 64]
# float32 rounds to 6e-8, bfloat16 to 4e-3, and sums and softmax leave some roundings of either.
ATTENTION = {"float32": 1e-5, "bfloat16": 4e-2}
# Three layers, and products of matrices summed in another order than the CPU's.
MODEL = {"float32": 1e-3, "bfloat16": 1e-1}
GENERATION = 1e-4


@dataclass
class Options:
    """What the command line may set."""

    device: str = "cpu"
    compile: bool = False
    small: bool = False  # tiny sizes, in seconds
    record: Path = RECORDS / "check.json"


@dataclass(frozen=True)
class Check:
    """One comparison: ``error`` returns how far the device is off; without a tolerance it is told
    and not judged."""

    name: str
    error: Callable[[], float]
    tolerance: float | None


def main(words: Sequence[str] | None = None) -> None:
    """Check, print the table, write the record; `RunError` when a check fails."""
    options = read_options(Options, words)
    device = resolve_device(options.device)
    torch.set_num_threads(1)
    rows = [outcome(check) for check in tqdm(list(checks(options, device)), disable=None)]
    header = ["check", "error", "tolerance", "verdict"]
    print_table(f"Against float64, {device}", header, [list(row.values())[:4] for row in rows])
    write_record(options.record, {"rows": rows}, device)
    wrong = [row["check"] for row in rows if row["verdict"] in ("WRONG", "failed")]
    if wrong:
        raise RunError(f"{len(wrong)} checks failed: {', '.join(wrong)}")


def outcome(check: Check) -> dict[str, Any]:
    """Return what a check finds; one that raises stops no other."""
    row: dict[str, Any] = {"check": check.name, "error": None, "tolerance": check.tolerance}
    try:
        row["error"] = check.error()
    except Exception:
        return {**row, "verdict": "failed", "traceback": traceback.format_exc()}
    return {**row, "verdict": verdict(row["error"], check.tolerance)}


def verdict(error: float, tolerance: float | None) -> str:
    """Return the word for an error; what is not finite is wrong anywhere."""
    if not math.isfinite(error):
        return "WRONG"
    if tolerance is None:
        return "equal to the bit" if error == 0 else "differs"
    return "ok" if error <= tolerance else "WRONG"


def checks(options: Options, device: torch.device) -> Iterator[Check]:
    """Yield every check."""
    lengths, head_dims = ([3, 9], HEAD_DIMS[:1]) if options.small else (LENGTHS, HEAD_DIMS)
    dim, operators, steps = (16, 2, 6) if options.small else (128, 6, 100)
    for form in against.FORMS:
        for precision, tolerance in ATTENTION.items():
            for length in lengths:
                for head_dim in head_dims:
                    error = functools.partial(
                        against.attention, form, precision, length, head_dim, device
                    )
                    name = f"attention {form} {precision} L={length} K={head_dim}"
                    yield Check(name, error, tolerance)
    task = Arithmetic(operators)
    for model in MIXERS:
        yield from model_checks(model, task, dim, steps, device, options.compile)


def model_checks(
    name: str, task: Arithmetic, dim: int, steps: int, device: torch.device, compile: bool
) -> Iterator[Check]:
    """Yield the checks of one whole model."""
    for precision, tolerance in MODEL.items():
        error = functools.partial(against.whole_model, name, precision, task, dim, device)
        yield Check(f"model {name} {precision}", error, tolerance)
        if compile:
            compiled = functools.partial(error, compiled=True)
            yield Check(f"compiled {name} {precision}", compiled, tolerance)
    generation = functools.partial(against.generation, name, task, dim, device)
    yield Check(f"generation {name}", generation, GENERATION)
    evaluation = functools.partial(against.evaluation, name, task, dim, device)
    yield Check(f"evaluation {name}", evaluation, 0.0)
    for how in ("twice", "interrupted"):
        again = functools.partial(
            against.twice, name, task, dim, steps, device, how == "interrupted"
        )
        yield Check(f"{how} {name}", again, None)
