"""How time and memory of attention grow with length: standard, sparse and linear, alone.

    python -m benchmarks scaling            # L = 512 ... 16,384: table, scaling.json, scaling.png
    python -m benchmarks scaling whole=true # every conf/model that claims linear time
    python -m benchmarks scaling mixers=[gla,mamba2] record=FILE.json
    python -m benchmarks scaling redraw=true

One sequence, forward and backward through `attend`, float32, one thread.  With `whole=true`, or
for the models named by `mixers`, whole mixers with their projections at D = 64 are timed; of a
hybrid, one of each kind.  These have room for the longest sequence, so that a window is the same
at every length.  Peak memory is what a first pass adds to a fresh process, its inputs not counted.
Seconds are the median of several passes after it, with freed memory kept as in a training.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from tqdm import tqdm

from benchmarks.shared.attention import HEAD_DIM, HEADS, attention_pass, mixers_pass
from benchmarks.shared.cells import MIXERS, mixers_of
from benchmarks.shared.processes import in_new_process
from benchmarks.shared.report import (
    RECORDS,
    print_table,
    read_options,
    read_record,
    require_among,
    write_record,
)
from benchmarks.shared.timing import in_turns, peak_bytes, reset_peak, seconds_of
from benchmarks.steps import KNOWN
from common import write_atomically
from plots.style import look, model_label
from training.malloc import keep_freed_memory

LENGTHS = [2**power for power in range(9, 15)]
SECONDS_PER_CASE = 240.0


@dataclass
class Options:
    """What the command line may set."""

    max_length: int = LENGTHS[-1]
    whole: bool = False  # whole mixers, all of linear time; otherwise attention alone
    mixers: list[str] = field(default_factory=list)  # these models of conf/model, whole
    record: Path | None = None  # the figure lies beside it; none: scaling.json, scaling_mixers.json
    redraw: bool = False  # draw what the record holds; measure nothing


def main(words: Sequence[str] | None = None) -> None:
    """Measure every mixer at every length in a process of its own; print, write, draw."""
    options = read_options(Options, words)
    require_among("mixers", options.mixers, KNOWN)
    whole = options.whole or bool(options.mixers)
    record = options.record or RECORDS / ("scaling_mixers.json" if whole else "scaling.json")
    if options.redraw:
        known = read_record(record)
        return draw(known["rows"], known["exponents"], record.with_suffix(".png"))
    torch.set_num_threads(1)
    lengths = [length for length in LENGTHS if length <= options.max_length]
    rows: list[dict] = []
    mixers = options.mixers or (linear_time() if whole else list(MIXERS))
    for length in tqdm(lengths, desc="lengths", disable=None):
        for mixer in mixers:
            rows.append(measure_apart(mixer, length, rows, whole))
    fits = {mixer: exponents([row for row in rows if row["mixer"] == mixer]) for mixer in mixers}
    print_rows(rows, fits)
    content = {"heads": HEADS, "head_dim": HEAD_DIM, "whole": whole, "rows": rows}
    content["exponents"] = fits
    write_record(record, content)
    return draw(rows, fits, record.with_suffix(".png"))


def linear_time() -> list[str]:
    """Return the models of conf/model of which every mixer says that late tokens cost no more."""
    length, found = LENGTHS[0], []
    for name in KNOWN:
        made = mixers_of(name, HEADS * HEAD_DIM, HEADS, length)
        if all(m.step_flops(length - 1) == m.step_flops(length // 2) for m in made):
            found.append(name)
    return found


def measure_apart(mixer: str, length: int, earlier: list[dict], whole: bool = False) -> dict:
    """Return one row from a fresh process, or a row that says why there is none."""
    row: dict = {"mixer": mixer, "length": length}
    before = [r for r in earlier if r["mixer"] == mixer]
    if before and "skipped" in before[-1]:
        return row | {"skipped": "a shorter length was skipped"}
    if before and before[-1]["total_seconds"] * 4.5 > SECONDS_PER_CASE:
        return row | {"skipped": f"expected to take more than {SECONDS_PER_CASE:.0f} s"}
    try:
        return row | in_new_process(measure, mixer, length, whole)
    except BrokenProcessPool:
        return row | {"skipped": "killed, probably for its memory"}
    except Exception as error:
        return row | {"skipped": f"{type(error).__name__}: {error}"}


def measure(name: str, length: int, whole: bool = False) -> dict:
    """Return median seconds and peak bytes of a forward and backward pass, in this process."""
    torch.set_num_threads(1)
    pass_once = one_pass(name, length, whole)
    one_pass(name, 64, whole)()  # libraries loaded, threads started
    start = reset_peak()
    first = seconds_of(pass_once)
    peak = peak_bytes() - start
    keep_freed_memory()
    seconds = in_turns({"pass": pass_once}, repeats=3 if first > 2 else 15)["pass"]
    return {
        "seconds": statistics.median(seconds),
        "fastest_seconds": min(seconds),
        "repeats": len(seconds),
        "total_seconds": first + sum(seconds),
        "peak_bytes": peak,
    }


def one_pass(name: str, length: int, whole: bool) -> Callable[[], None]:
    """Return a function that runs a mixer, or its attention alone, forward and backward."""
    if whole:
        return mixers_pass(mixers_of(name, HEADS * HEAD_DIM, HEADS, LENGTHS[-1]), length, batch=1)
    return attention_pass(MIXERS[name](HEADS * HEAD_DIM, HEADS, length), length, batch=1)


def exponents(rows: list[dict]) -> dict[str, float | None]:
    """Return slopes of log seconds and log peak bytes on log length, by least squares.

    Over all lengths, and over the upper half, where fixed costs weigh less.
    """
    rows = [row for row in rows if "skipped" not in row]
    fits: dict[str, float | None] = {}
    for quantity in ("seconds", "peak_bytes"):
        points = [(row["length"], row[quantity]) for row in rows]
        fits[quantity] = slope(points)
        fits[f"{quantity}_upper_half"] = slope(points[len(points) // 2 :])
    return fits


def slope(points: list[tuple[float, float]]) -> float | None:
    """Return the slope of log y on log x; None for fewer than two points."""
    if len(points) < 2:
        return None
    logs = [(math.log(x), math.log(y)) for x, y in points]
    return statistics.linear_regression(*zip(*logs, strict=True)).slope


def print_rows(rows: list[dict], fits: dict[str, dict[str, float | None]]) -> None:
    """Print a table of milliseconds and one of MiB: a mixer a row, its exponents at the end."""
    lengths = sorted({row["length"] for row in rows})
    header = ["", *(f"{length:,}" for length in lengths), "power of L", "upper half"]
    for quantity, title, scale in (("seconds", "ms", 1e3), ("peak_bytes", "MiB", 2**-20)):
        table = []
        for mixer, fit in fits.items():
            found = {r["length"]: r[quantity] * scale for r in rows if measured(r, mixer)}
            powers = fit[quantity], fit[f"{quantity}_upper_half"]
            table.append([mixer, *map(found.get, lengths), *powers])
        print_table(f"One layer's mixing, forward and backward, {title}", header, table)
    for row in rows:
        if "skipped" in row:
            print(f"{row['mixer']} at {row['length']:,} skipped: {row['skipped']}")


def measured(row: dict, mixer: str) -> bool:
    """Is this a measurement of ``mixer``, and not one that was skipped?"""
    return row["mixer"] == mixer and "skipped" not in row


def draw(rows: list[dict], fits: dict[str, dict[str, float | None]], path: Path) -> None:
    """Draw time and memory against length, both axes logarithmic."""
    crowded = len(fits) > 4
    figure, axes = plt.subplots(1, 2, figsize=(9, 6 if crowded else 3.8), layout="constrained")
    panels = (("seconds", "CPU seconds, one thread", 1.0), ("peak_bytes", "peak MiB", 2**20))
    for axis, (quantity, label, unit) in zip(axes, panels, strict=True):
        for mixer in fits:
            known = [r for r in rows if measured(r, mixer)]
            fit = fits[mixer][quantity]
            name = model_label(mixer) + (f": L^{fit:.2f}" if fit else "")
            values = [r[quantity] / unit for r in known]
            axis.plot([r["length"] for r in known], values, label=name, **look(mixer, list(fits)))
        lengths = sorted({r["length"] for r in rows})
        axis.set_xscale("log", base=2)
        axis.set_xticks(lengths, [f"{length:,}" for length in lengths])
        axis.set(xlabel="length L", ylabel=label, yscale="log")
        axis.grid(alpha=0.3)
        if crowded:
            axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2, fontsize="small")
        else:
            axis.legend()
    figure.suptitle(
        f"One layer's mixing, forward + backward, {HEADS} heads of {HEAD_DIM}, batch 1; one run, "
        "medians; fitted over all L"
    )
    write_atomically(path, partial(figure.savefig, dpi=150, format="png"))
    plt.close(figure)
