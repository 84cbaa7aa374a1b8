"""Timing and records of the benchmarks.

Alternatives take turns in one process, so that a slow moment affects all of them. Quote
ratios of one run, not seconds of two.
"""

import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from common import write_json
from experiments.run_folder import provenance
from training.device import device_name

CPU = torch.device("cpu")
RECORDS = Path(__file__).parent / "records"
UNUSED_FROM = 10**6  # no cell trains or tests on sequences of the test stream from here on


def seconds_of(action: Callable[[], object], device: torch.device = CPU) -> float:
    """Seconds of `action`: on a CPU, CPU seconds per thread (the wall time of an idle machine on
    one thread); on a GPU, wall seconds until it is done."""
    if device.type == "cpu":
        begun = time.process_time()
        action()
        return (time.process_time() - begun) / torch.get_num_threads()
    torch.cuda.synchronize(device)
    begun = time.perf_counter()
    action()
    torch.cuda.synchronize(device)
    return time.perf_counter() - begun


def median_seconds(
    actions: Mapping[str, Callable[[], object]],
    repeats: int,
    device: torch.device = CPU,
    warm_up: int = 1,
) -> dict[str, float]:
    """Median of `seconds_of` by name; actions take turns, after `warm_up` turns."""
    taken: dict[str, list[float]] = {name: [] for name in actions}
    for turn in range(warm_up + repeats):
        for name, action in actions.items():
            seconds = seconds_of(action, device)
            if turn >= warm_up:
                taken[name].append(seconds)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def print_rows(title: str, rows: Iterable[Mapping[str, Any]]) -> None:
    table = pd.DataFrame(list(rows))
    print(f"\n{title}\n{table.to_string(index=False, float_format='{:,.4g}'.format, na_rep='')}")


def write_record(path: Path, content: dict[str, Any], device: torch.device = CPU) -> None:
    about = {**provenance(), "device": device_name(device), "threads": torch.get_num_threads()}
    write_json(path, {"about": about, **content})
    print(f"\nrecord: {path}")
