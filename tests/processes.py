"""Run Python in subprocesses, and wait for what they do."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def start(*words: str, cwd: Path | None = None, **environment: str) -> subprocess.Popen[str]:
    """Start `python WORDS` with this repository on the Python path."""
    own = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, *words], cwd=cwd, env={**os.environ, **own, **environment}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def output(*words: str, **others) -> str:
    """Return the output of `python WORDS`, which must exit with status 0."""
    process = start(*words, **others)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err
    return out


def wait_until(condition: Callable[[], object], seconds: float = 60) -> object:
    """Wait until condition() is true, at most `seconds`; return its last value."""
    deadline = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found
