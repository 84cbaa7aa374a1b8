"""Drawing speed against CoT_benchmark (Feng et al. 2023).

    python -m benchmarks data

Sequences per CPU second of one core. *Drawn*: the compiled kernel. *Distinct*: with hashing,
uniqueness and copying. CoT_benchmark's own code was timed in wall seconds, on two idle cores of
an EPYC: ratios hold on such a machine.
"""

import statistics
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.timing import RECORDS, median_seconds, print_rows, write_record
from tasks.arithmetic import Arithmetic
from tasks.ed import EditDistance
from tasks.lis import LIS
from tasks.sampling import draw_set
from tasks.task import Task

COT_BENCHMARK: list[tuple[Task, int]] = [  # sequences/s on one core
    (Arithmetic(6), 20_000),
    (Arithmetic(16), 11_800),
    (LIS(40), 4_200),
    (LIS(250), 167),
    (EditDistance(6), 16_700),
    (EditDistance(20), 3_800),
]


def main(count: int = 20_000, repeats: int = 5, record: Path = RECORDS / "data.json") -> None:
    rows = [measure(task, known, count, repeats) for task, known in tqdm(COT_BENCHMARK)]
    means = {
        name: statistics.geometric_mean(row[name] for row in rows)
        for name in ("drawn_ratio", "distinct_ratio")
    }
    print_rows("Sequences per CPU second, and over CoT_benchmark's", rows)
    print_rows("Geometric mean over CoT_benchmark", [means])
    write_record(record, {"count": count, "geometric_means": means, "rows": rows})


def measure(task: Task, cot_benchmark: int, count: int, repeats: int) -> dict[str, Any]:
    actions = {
        "drawn": lambda: task.draw(0, 0, 0, count),
        "distinct": lambda: draw_set(task, "test", count),
    }
    speeds = {name: count / seconds for name, seconds in median_seconds(actions, repeats).items()}
    ratios = {f"{name}_ratio": speed / cot_benchmark for name, speed in speeds.items()}
    return {"task": task.name, "size": task.size, "cot_benchmark": cot_benchmark} | speeds | ratios
