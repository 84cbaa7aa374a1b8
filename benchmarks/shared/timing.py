"""Seconds and bytes, taken so that they can be compared."""

from __future__ import annotations

import contextlib
import platform
import resource
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

CPU = torch.device("cpu")


def seconds_of(action: Callable[[], object], device: torch.device = CPU) -> float:
    """Return the seconds that ``action`` takes on ``device``.

    On a CPU these are CPU seconds, shared out over the threads: on one thread, the wall time of an
    idle machine.  On a GPU they are wall seconds until it is done.
    """
    if device.type == "cpu":
        begun = time.process_time()
        action()
        return (time.process_time() - begun) / torch.get_num_threads()
    torch.cuda.synchronize(device)
    begun = time.perf_counter()
    action()
    torch.cuda.synchronize(device)
    return time.perf_counter() - begun


def in_turns(
    actions: Mapping[str, Callable[[], object]],
    repeats: int,
    device: torch.device = CPU,
    warm_up: int = 1,
) -> dict[str, list[float]]:
    """Return the seconds of ``repeats`` calls of each action, after ``warm_up`` that do not count.

    The actions take turns, so that a machine that slows down slows all of them: compare figures of
    one call by their ratios.
    """
    taken: dict[str, list[float]] = {name: [] for name in actions}
    for turn in range(warm_up + repeats):
        for name, action in actions.items():
            seconds = seconds_of(action, device)
            if turn >= warm_up:
                taken[name].append(seconds)
    return taken


def reset_peak() -> int:
    """Let the kernel's high-water mark start anew, where it allows that; return `peak_bytes`."""
    with contextlib.suppress(OSError):  # then the mark is that of the imports: small cases shrink
        Path("/proc/self/clear_refs").write_text("5")
    return peak_bytes()


def peak_bytes() -> int:
    """Return the most memory this process has held: VmHWM on Linux, else ru_maxrss."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if platform.system() == "Darwin" else used * 1024
