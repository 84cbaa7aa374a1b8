"""How fast sequences are drawn: compiled kernels, plain Python, CoT_benchmark (Feng et al. 2023).

python -m benchmarks data               table and benchmarks/records/data.json

One core. Both paths are measured in the same run, in turns, by CPU seconds of the drawing thread
(on an idle machine: wall seconds); each figure is the median of several turns. "distinct" is the
kernel's way into a data set: hashing, uniqueness and copying included. The figures of
CoT_benchmark are wall seconds of its own code on two cores without a GPU, the machine on which the
record was written; its ratios hold there.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from tasks.arithmetic import Arithmetic
from tasks.ed import EditDistance
from tasks.ed_local import EditDistanceLocal
from tasks.generate import SeenPrompts, draw_set
from tasks.lis import LIS
from tasks.task import Task

RECORD = Path(__file__).parent / "records" / "data.json"
COT_BENCHMARK: list[tuple[Task, int | None]] = [  # samples/s on one core
    (Arithmetic(6), 20_000),
    (Arithmetic(16), 11_800),
    (LIS(40), 4_200),
    (LIS(250), 167),
    (EditDistance(6), 16_700),
    (EditDistance(20), 3_800),
    (EditDistanceLocal(6), None),
    (EditDistanceLocal(20), None),
]
SECONDS_PER_TURN = 0.25


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print the table, write the record."""
    parser = argparse.ArgumentParser(prog="benchmarks.data", description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--record", type=Path, default=RECORD)
    options = parser.parse_args(argv)
    rows = [
        measure(task, recorded, options.turns)
        for task, recorded in tqdm(COT_BENCHMARK, unit="setting", disable=None)
    ]
    print_table(rows)
    write_record(options.record, rows, options.turns)
    print(f"record: {options.record}")


def measure(task: Task, recorded: int | None, turns: int) -> dict[str, Any]:
    """Return samples/s of each path for one setting: the median over turns taken alternately."""
    rng = random.Random(0)

    def plain(count: int, turn: int) -> None:
        for _ in range(count):
            task.sample(rng)

    def kernel(count: int, turn: int) -> None:
        task.draw(turn, 0, 0, count)

    def distinct(count: int, turn: int) -> None:
        draw_set(task, "test", count, turn, SeenPrompts(count))

    paths: dict[str, Callable[[int, int], None]]
    paths = {"plain": plain, "kernel": kernel, "distinct": distinct}
    counts = {name: calibrate(path) for name, path in paths.items()}
    speeds: dict[str, list[float]] = {name: [] for name in paths}
    for turn in range(turns):
        for name, path in paths.items():
            speeds[name].append(counts[name] / cpu_seconds(path, counts[name], turn))
    row: dict[str, Any] = {"task": task.name, "size": task.size, "cot_benchmark": recorded}
    for name in paths:
        row[name] = statistics.median(speeds[name])
        row[f"{name}_turns"] = speeds[name]
    return row


def calibrate(path: Callable[[int, int], None]) -> int:
    """Return a number of samples that takes about a turn; compiles on the way."""
    path(1, 0)
    count = 16
    while (seconds := cpu_seconds(path, count, 0)) < SECONDS_PER_TURN / 4:
        count *= 4
    return max(1, min(200_000, round(count * SECONDS_PER_TURN / seconds)))


def cpu_seconds(path: Callable[[int, int], None], count: int, turn: int) -> float:
    """Return the process's CPU seconds, its drawing threads included."""
    begun = time.process_time()
    path(count, turn)
    return max(time.process_time() - begun, 1e-9)


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print samples/s and ratios; the last line holds geometric means, see `geometric_means`."""
    head = ["plain", "kernel", "distinct", "CoT_bench.", "kernel/plain", "kernel/CoT", "dist./CoT"]
    print(f"{'samples/s, one core':<20}" + "".join(f"{name:>13}" for name in head))
    for row in rows:
        figures = [f"{row[name]:,.0f}" for name in ("plain", "kernel", "distinct")]
        figures.append(f"{row['cot_benchmark']:,}" if row["cot_benchmark"] else "-")
        figures.append(f"{row['kernel'] / row['plain']:,.0f}")
        for name in ("kernel", "distinct"):
            figures.append(
                f"{row[name] / row['cot_benchmark']:,.0f}" if row["cot_benchmark"] else "-"
            )
        label = f"{row['task']}-{row['size']}"
        print(f"{label:<20}" + "".join(f"{figure:>13}" for figure in figures))
    means = [f"{value:,.0f}" for value in geometric_means(rows).values()]
    print(f"{'geometric mean':<20}" + " " * 52 + "".join(f"{mean:>13}" for mean in means))


def geometric_means(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return the mean ratios over the settings that CoT_benchmark was measured at."""
    known = [row for row in rows if row["cot_benchmark"]]

    def mean(above: str, below: str) -> float:
        return math.exp(statistics.fmean(math.log(row[above] / row[below]) for row in known))

    return {
        "kernel_over_plain": mean("kernel", "plain"),
        "kernel_over_cot_benchmark": mean("kernel", "cot_benchmark"),
        "distinct_over_cot_benchmark": mean("distinct", "cot_benchmark"),
    }


def write_record(path: Path, rows: list[dict[str, Any]], turns: int) -> None:
    """Write every figure, aside and renamed, with where it was measured."""
    record = {
        "unit": "sequences per CPU second, one core",
        "turns": turns,
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "geometric_means": geometric_means(rows),
        "rows": rows,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".part")
    aside.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    aside.replace(path)


if __name__ == "__main__":
    main()
