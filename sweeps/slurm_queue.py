"""Which of our jobs wait or run in SLURM, asked of ``squeue``.

A cell that is launched gets a ticket in its folder before its job is submitted: the job's name,
which nobody else has, and its index in the array.  A sweep started later, when the one that
submitted is long dead, compares tickets with the queue and launches no cell twice.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import uuid
from collections.abc import Iterable
from typing import Any

# COMPLETING too: a job that an operator requeues passes through it on its way to PENDING.
LIVING = (
    "PENDING,RUNNING,SUSPENDED,CONFIGURING,COMPLETING,REQUEUED,REQUEUE_HOLD,SPECIAL_EXIT,STOPPED,"
    "SIGNALING,STAGE_OUT"
)


def new_tickets(count: int, array_size: int) -> list[dict[str, Any]]:
    """Return a ticket for each of ``count`` jobs that are submitted in arrays of ``array_size``."""
    names = [f"cotcost-{uuid.uuid4().hex[:10]}" for _ in range(0, count, array_size)]
    return [
        {"slurm_job_name": names[i // array_size], "array_index": i % array_size}
        for i in range(count)
    ]


def living(names: Iterable[str]) -> set[tuple[str, int]] | None:
    """Return (job name, index in the array) of each job of these names that SLURM still has.

    None when the queue does not answer; empty where there is no SLURM.
    """
    wanted = sorted(set(names))
    if not wanted or shutil.which("squeue") is None:
        return set()
    command = ["squeue", "--noheader", "--array", "-o", "%j %K", "-t", LIVING]
    try:
        done = subprocess.run(
            [*command, "-n", ",".join(wanted)],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    pairs = (line.split() for line in done.stdout.splitlines() if line.strip())
    return {(name, int(index) if index.isdigit() else 0) for name, index in pairs}


def end_state(job_id: str) -> str:
    """Return how SLURM says that a job ended, such as OUT_OF_MEMORY; "unknown" if it forgot."""
    try:
        done = subprocess.run(
            ["scontrol", "show", "job", "--oneliner", job_id],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    found = re.search(r"\bJobState=(\w+)", done.stdout)
    return found.group(1) if found else "unknown"
