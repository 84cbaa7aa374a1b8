"""How a mixer's time grows with length L, forward and backward.

    python -m benchmarks scaling                          # every model but tensor
    python -m benchmarks scaling models=gla,mamba2 record=FILE.json

The mixers of conf/model with their projections (a hybrid's in sequence), D = 64, H = 4;
one sequence, float32, one thread, median seconds. A mixer of linear time has room for the longest
sequence, so its window is the same at every length.
"""

import functools
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from tqdm import tqdm

from benchmarks.timing import RECORDS, median_seconds, print_rows, seconds_of, write_record
from benchmarks.training import MODELS, config_of
from models.build import build_mixer
from models.mixer import Mixer
from training.device import keep_freed_memory

DIM, HEADS = 64, 4
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
LONGEST_PASS = 30.0  # seconds; longer sequences are not tried after a slower pass


def main(
    models: tuple[str, ...] = MODELS,
    lengths: tuple[int, ...] = LENGTHS,
    record: Path = RECORDS / "scaling.json",
) -> None:
    torch.set_num_threads(1)
    keep_freed_memory()  # as in training
    measured = {name: measure_lengths(name, lengths) for name in tqdm(models)}
    rows = [row for found in measured.values() for row in found]
    powers = [{"model": name, "seconds": slope(found)} for name, found in measured.items()]
    print_rows("Forward and backward of a mixer", rows)
    print_rows("Powers of L", powers)
    write_record(record, {"dim": DIM, "heads": HEADS, "rows": rows, "powers": powers})


def measure_lengths(name: str, lengths: Sequence[int]) -> list[dict[str, Any]]:
    """A row per length, up to the first that takes too long."""
    rows: list[dict[str, Any]] = []
    linear = takes_linear_time(name)
    for length in lengths:
        room = lengths[-1] if linear else length
        rows.append({"model": name, "length": length, "seconds": measure(name, length, room)})
        if rows[-1]["seconds"] > LONGEST_PASS:
            break
    return rows


def takes_linear_time(name: str) -> bool:
    """Whether a late token costs no more than an early one in every mixer."""
    late, early = LENGTHS[0], LENGTHS[0] // 2

    def cost(mixer: Mixer, length: int) -> int:
        return sum(mixer.flops(length).values()) - sum(mixer.flops(length - 1).values())

    return all(cost(m, late) == cost(m, early) for m in mixers_of(name, late))


def mixers_of(name: str, max_len: int) -> list[Mixer]:
    """The mixer of conf/model/NAME.yaml, or those its layers alternate between."""
    model = config_of(f"model={name}").model
    every = model.mixers or [model.mixer or {}]
    build = functools.partial(build_mixer, dim=DIM, num_heads=HEADS, max_len=max_len)
    return [build(own) for own in every]


def measure(name: str, length: int, room: int) -> float:
    run = forward_backward(mixers_of(name, room), length)
    return median_seconds({"": run}, repeats=3 if seconds_of(run) > 2 else 15)[""]


def forward_backward(mixers: list[Mixer], length: int) -> Callable[[], object]:
    x, direction = torch.randn(2, 1, length, DIM)  # (1, T, D)
    chain = nn.Sequential(*mixers)
    leaves = [x.requires_grad_(), *chain.parameters()]
    return lambda: torch.autograd.grad(chain(x), leaves, direction)


def slope(rows: Sequence[dict[str, Any]]) -> float | None:
    """The exponent of L in the seconds; None for a single length."""
    if len(rows) < 2:
        return None
    x, y = ([math.log(row[name]) for row in rows] for name in ("length", "seconds"))
    return statistics.linear_regression(x, y).slope
