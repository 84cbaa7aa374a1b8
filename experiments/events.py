"""Heartbeats of a running cell, and stopping it."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from experiments.runs import Run
from training.trainer import Event, Listener, Phase, TrainingStep, Validation

HEARTBEAT_SECONDS = 1.0


def heartbeat(run: Run, cell: str) -> Listener:
    """Return a listener that writes progress.json once a second, and at every new phase."""
    known: dict[str, Any] = {"cell": cell}
    written = -math.inf

    def listen(event: Event) -> None:
        nonlocal written
        match event:
            case Phase(name):
                known["phase"], written = name, -math.inf
            case TrainingStep(step, steps, loss):
                known.update(step=step, steps=steps, train_loss=loss)
            case Validation():
                known["validation_chain_exact_match"] = event.validation_chain_exact_match
        if time.monotonic() - written > HEARTBEAT_SECONDS:
            written = time.monotonic()
            run.write_progress(**known)

    return listen


@contextlib.contextmanager
def noting_stop_signals() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether SIGTERM has come; training then saves and stops.

    Where somebody else handles the signal, as submitit does, that handler stays.
    """
    received: list[int] = []
    in_main = threading.current_thread() is threading.main_thread()
    replaced = in_main and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if replaced:
        signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
    try:
        yield lambda: bool(received)
    finally:
        if replaced:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
