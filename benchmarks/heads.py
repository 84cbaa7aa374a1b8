"""What attention costs in layers L, heads H and tokens N: the exponents, measured.

    python -m benchmarks heads               # table, benchmarks/records/heads.json, heads.png

Attention alone, forward, fused, float32, one thread, every token seeing every other; L layers one
after another, each fed the output of the one below as its values. "Batched" is one call for all
heads of a layer, "separate" a call a head. Two regimes: heads of m = 16, and of m = N. Seconds are
the least of three, all cases in random order; docs/heads.md says what they can show.
"""

from __future__ import annotations

import functools
import math
import random
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from config.build import check_buildable
from matplotlib.axes import Axes
from scipy.special import stdtrit
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from benchmarks.shared.cells import cell_config
from benchmarks.shared.report import RECORDS, print_table, read_options, read_record, write_record
from benchmarks.shared.timing import seconds_of
from common import write_atomically
from models.flops import bound_ratio
from tasks.by_name import CONF_DIR

REPEATS, SMALL = 3, 16
OMEGA = 2.371339  # Alman, Duan, Vassilevska Williams, Xu, Xu, Zhou 2025
CALLS = {"batched": "o", "separate": "s"}
REGIMES = {"16": "heads 16 wide (m = 16)", "N": "heads as wide as the text is long (m = N)"}
Row = dict[str, Any]


@dataclass
class Options:
    """What the command line may set: L, H, and N of either regime."""

    layers: list[int] = field(default_factory=lambda: [1, 2, 4])
    heads: list[int] = field(default_factory=lambda: [1, 2, 4, 8])
    tokens: list[int] = field(default_factory=lambda: [256, 512, 1024, 2048])
    wide_tokens: list[int] = field(default_factory=lambda: [128, 256, 512])
    record: Path = RECORDS / "heads.json"  # the figure lies beside it
    redraw: bool = False  # draw what the record holds; measure nothing


def main(words: Sequence[str] | None = None) -> None:
    """Measure every case, fit, print, write, draw."""
    options = read_options(Options, words)
    if options.redraw:
        return draw(read_record(options.record)["rows"], options.record.with_suffix(".png"))
    torch.set_num_threads(1)
    rows = measure(options)
    fits = {
        f"{regime} {calls}": exponents(chosen(rows, regime, calls))
        for regime, calls in product(REGIMES, CALLS)
    }
    ratios, bounds = batched_over_separate(rows), bound_ratios()
    print_tables(fits, ratios, rows, bounds)
    content = {"exponents": fits, "batched_over_separate": ratios, "bound_ratios": bounds}
    write_record(options.record, {**content, "omega": OMEGA, "rows": rows})
    return draw(rows, options.record.with_suffix(".png"))


def measure(options: Options) -> list[Row]:
    """Return a row a case with its least seconds; every round goes through all in a new order."""
    sizes = [("16", tokens, SMALL) for tokens in options.tokens]
    sizes += [("N", tokens, tokens) for tokens in options.wide_tokens]
    rows: list[Row] = [
        {"regime": regime, "calls": calls, "layers": layers, "heads": heads, "tokens": tokens,
         "head_dim": head_dim, "seconds": math.inf}
        for (regime, tokens, head_dim), layers, heads, calls in product(
            sizes, options.layers, options.heads, CALLS
        )
    ]  # fmt: skip
    order = random.Random(0)
    for _ in tqdm(range(REPEATS), desc="rounds", disable=None):
        for row in order.sample(rows, len(rows)):
            seconds = seconds_of(attention(row))
            row["seconds"] = min(row["seconds"], seconds)
    return rows


def attention(row: Row) -> Callable[[], Tensor]:
    """Return a function that runs the L layers of one case; a first call is not counted."""
    generator = torch.Generator().manual_seed(0)
    shape = (1, row["heads"], row["tokens"], row["head_dim"])
    q, k, v = (torch.randn(shape, generator=generator) for _ in range(3))
    parts = [1] * row["heads"] if row["calls"] == "separate" else [row["heads"]]
    inputs = list(zip(q.split(parts, 1), k.split(parts, 1), v.split(parts, 1), strict=True))

    @torch.inference_mode()
    def run(layers: int = row["layers"]) -> Tensor:
        for query, key, values in inputs:
            y = values
            for _ in range(layers):
                y = F.scaled_dot_product_attention(query, key, y)
        return y

    run(1)
    return run


def chosen(rows: Iterable[Row], regime: str, calls: str) -> list[Row]:
    """Return the rows of one regime and one kind of calls."""
    return [row for row in rows if (row["regime"], row["calls"]) == (regime, calls)]


def exponents(rows: Sequence[Row]) -> dict[str, tuple[float, float] | None]:
    """Return the powers of L, H and N in the seconds, each with half its 95 % interval.

    Least squares of log seconds on the three logs and a constant. Not given for what does not vary.
    """
    names = [n for n in ("layers", "heads", "tokens") if len({row[n] for row in rows}) > 1]
    logs = np.log([[row[name] for name in names] for row in rows]).reshape(len(rows), -1)
    design = np.column_stack((np.ones(len(rows)), logs))
    free = len(rows) - design.shape[1]
    if not names or free < 1:
        return dict.fromkeys(("layers", "heads", "tokens"))
    seconds = np.log([row["seconds"] for row in rows])
    power, *_ = np.linalg.lstsq(design, seconds, rcond=None)
    variance = ((seconds - design @ power) ** 2).sum() / free
    error = np.sqrt(variance * np.linalg.inv(design.T @ design).diagonal())
    found = {
        n: (float(power[i]), float(stdtrit(free, 0.975) * error[i])) for i, n in enumerate(names, 1)
    }
    return {name: found.get(name) for name in ("layers", "heads", "tokens")}


def batched_over_separate(rows: Sequence[Row]) -> list[Row]:
    """Return the median ratio of seconds over L and all H above 1, by regime and N."""
    seconds: dict[tuple[str, int], list[float]] = {}
    for regime in REGIMES:
        for one, other in zip(
            *(chosen(rows, regime, calls) for calls in ("batched", "separate")), strict=True
        ):
            if one["heads"] > 1:
                key = (regime, one["tokens"])
                seconds.setdefault(key, []).append(one["seconds"] / other["seconds"])
    return [
        {"regime": regime, "tokens": tokens, "ratio": statistics.median(ratios)}
        for (regime, tokens), ratios in seconds.items()
    ]


def bound_ratios(lengths: Sequence[int] = (35, 221, 505)) -> dict[str, list[float]]:
    """Return `models.flops.bound_ratio` of every configured mixer at three lengths, D = 64."""
    found = {}
    for path in sorted((CONF_DIR / "model").glob("*.yaml")):
        config = cell_config(f"task=lis task.size={(max(lengths) - 3) // 2} model={path.stem}")
        if config.model.construct is None:
            model = check_buildable(config)[1]
            found[path.stem] = [bound_ratio(model, length) for length in lengths]
    return found


def flops_over_bound(row: Row) -> float:
    """Return FLOPs, 4 N² m a head, over L H N^ω: how far cubic products are from today's ω."""
    tokens = row["tokens"]
    return 4 * tokens**2 * row["head_dim"] / tokens**OMEGA


def print_tables(
    fits: dict[str, Any], ratios: Sequence[Row], rows: Sequence[Row], bounds: dict[str, list[float]]
) -> None:
    """Print exponents with intervals, ratios, and the two kinds of distance to a bound."""
    shown = [
        [*name.split(), *(f"{f[0]:.2f} ± {f[1]:.2f}" if f else "" for f in fit.values())]
        for name, fit in fits.items()
    ]
    print_table("Powers in seconds, 95 %", ["m", "calls", "L", "H", "N"], shown)
    table = [[REGIMES[r["regime"]], r["tokens"], r["ratio"]] for r in ratios]
    print_table("Batched over separate, median", ["", "N", "ratio"], table)
    wide = {row["tokens"]: flops_over_bound(row) for row in chosen(rows, "N", "batched")}
    print_table("FLOPs over L H N^ω at m = N", ["N", "ratio"], wide.items())
    print_table(
        "Mixing FLOPs over M H T², D = 64, H = 4",
        ["mixer", "T = 35", "221", "505"],
        [[name, *values] for name, values in bounds.items()],
    )


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw seconds against H, and batched over separate, for either regime at the least L."""
    figure, axes = plt.subplots(
        2, 2, figsize=(11, 6.4), layout="constrained", height_ratios=(2, 1), sharex=True
    )
    least = min(row["layers"] for row in rows)
    colours = {tokens: f"C{i}" for i, tokens in enumerate(sorted({r["tokens"] for r in rows}))}
    for column, regime in zip(axes.T, REGIMES, strict=True):
        own = [row for row in rows if row["regime"] == regime and row["layers"] == least]
        draw_seconds(column[0], own, colours)
        draw_ratio(column[1], own, colours)
        column[0].set_title(REGIMES[regime])
    axes[0, 0].set_ylabel("CPU seconds")
    axes[1, 0].set_ylabel("batched / separate")
    figure.supxlabel("heads H")
    title = f"Attention alone, forward, one thread, layers = {least}, N tokens; least of {REPEATS}"
    figure.suptitle(f"{title}. Grey: slope 1")
    write_atomically(path, functools.partial(figure.savefig, dpi=150, format="png"))
    plt.close(figure)


def draw_seconds(axis: Axes, rows: Sequence[Row], colours: dict[int, str]) -> None:
    """A colour for each N, a marker for the kind of calls, and a line of slope 1 below each."""
    for tokens in sorted({row["tokens"] for row in rows}):
        for calls, marker in CALLS.items():
            own = [r for r in rows if (r["tokens"], r["calls"]) == (tokens, calls)]
            heads, seconds = [r["heads"] for r in own], [r["seconds"] for r in own]
            style = "-" if calls == "batched" else "--"
            label = f"N = {tokens}, {calls}"
            axis.plot(heads, seconds, style, marker=marker, color=colours[tokens], label=label)
            if calls == "batched":
                axis.plot(heads, [seconds[0] * h / heads[0] for h in heads], color="0.7", zorder=0)
    axis.set(xscale="log", yscale="log")
    axis.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)


def draw_ratio(axis: Axes, rows: Sequence[Row], colours: dict[int, str]) -> None:
    """Batched over separate against H, a line each N."""
    for tokens in sorted({row["tokens"] for row in rows}):
        by_calls = [
            {r["heads"]: r["seconds"] for r in rows if (r["tokens"], r["calls"]) == (tokens, calls)}
            for calls in ("batched", "separate")
        ]
        heads = sorted(by_calls[0])
        ratios = [by_calls[0][h] / by_calls[1][h] for h in heads]
        axis.plot(heads, ratios, marker="o", color=colours[tokens])
    axis.axhline(1, color="0.7", zorder=0)
    axis.set_xticks(heads, map(str, heads))
    axis.minorticks_off()
