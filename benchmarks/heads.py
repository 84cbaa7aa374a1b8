"""The cost of attention in layers M, heads H and tokens T: measured exponents.

    python -m benchmarks heads

Attention alone, forward, fused, float32, one thread, every token seeing every other; M layers in
sequence, each fed the output below as its values. *Batched* is one call for all heads of a layer,
*separate* a call per head; heads are K = 16 wide, or K = T. Seconds are the least of three, all
cases in random order. See docs/heads.md.
"""

import math
import random
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.special import stdtrit
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from benchmarks.timing import RECORDS, print_rows, seconds_of, write_record

REPEATS = 3
AXES = ("layers", "heads", "tokens")
Row = dict[str, Any]


def main(
    layers: tuple[int, ...] = (1, 2, 4),
    heads: tuple[int, ...] = (1, 2, 4, 8),
    tokens: tuple[int, ...] = (256, 512, 1024, 2048),
    wide_tokens: tuple[int, ...] = (128, 256, 512),
    record: Path = RECORDS / "heads.json",
) -> None:
    torch.set_num_threads(1)
    sizes = [("16", n, 16) for n in tokens] + [("T", n, n) for n in wide_tokens]
    rows: list[Row] = [
        {"K": m, "calls": calls, "layers": depth, "heads": count, "tokens": n, "width": width,
         "seconds": math.inf}
        for (m, n, width), depth, count, calls in product(
            sizes, layers, heads, ("batched", "separate"))
    ]  # fmt: skip
    order = random.Random(0)
    for _ in tqdm(range(REPEATS), desc="rounds", disable=None):
        for row in order.sample(rows, len(rows)):
            row["seconds"] = min(row["seconds"], seconds_of(attention(row)))
    groups = pd.DataFrame(rows).groupby(["K", "calls"], sort=False)
    fits = [{"K": m, "calls": calls, **exponents(part)} for (m, calls), part in groups]
    print_rows("Exponents of time, each ± half its 95 % interval", fits)
    write_record(record, {"exponents": fits, "rows": rows})


def attention(row: Row) -> Callable[[], Tensor]:
    """A function that runs the M layers of one case, already warmed up."""
    generator = torch.Generator().manual_seed(0)
    shape = (1, row["heads"], row["tokens"], row["width"])  # (1, H, T, K)
    q, k, v = (torch.randn(shape, generator=generator) for _ in range(3))
    heads = 1 if row["calls"] == "separate" else row["heads"]  # a call

    @torch.inference_mode()
    def run(layers: int = row["layers"]) -> Tensor:
        for query, key, y in zip(
            q.split(heads, 1), k.split(heads, 1), v.split(heads, 1), strict=True
        ):
            for _ in range(layers):
                y = F.scaled_dot_product_attention(query, key, y)
        return y

    run(1)
    return run


def exponents(table: pd.DataFrame) -> dict[str, float]:
    """Exponents of time in M, H and T, each with half its 95 % interval: a least-squares fit of
    log seconds to the logs of what varies."""
    names = [name for name in AXES if table[name].nunique() > 1]
    design = np.column_stack([np.ones(len(table)), np.log(table[names])])
    seconds = np.log(table["seconds"].to_numpy())
    power, *_ = np.linalg.lstsq(design, seconds, rcond=None)
    free = len(table) - len(power)
    variance = ((seconds - design @ power) ** 2).sum() / free
    error = np.sqrt(variance * np.linalg.inv(design.T @ design).diagonal())
    found = {}
    for place, name in enumerate(names, 1):
        found[name] = float(power[place])
        found[f"{name}_±"] = float(stdtrit(free, 0.975) * error[place])
    return found
