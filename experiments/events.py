"""Heartbeats of a running cell, and stopping it."""

from __future__ import annotations

import contextlib
import math
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

from experiments.runs import Run
from training.trainer import (
    Evaluated,
    Event,
    Listener,
    Phase,
    TrainingStep,
    Validation,
)

HEARTBEAT_SECONDS = 1.0


def both(first: Listener, second: Listener) -> Listener:
    """Return a listener that passes every event to two."""

    def listen(event: Event) -> None:
        first(event)
        second(event)

    return listen


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
            case Evaluated(done, total):
                known.update(evaluated=done, of=total)
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
    try:
        replaced = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        if replaced:
            signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
    except ValueError:  # not the main thread
        replaced = False
    try:
        yield lambda: bool(received)
    finally:
        if replaced:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def stop_after(seconds: float | None, stop: Callable[[], bool]) -> Callable[[], bool]:
    """Return a function that is true once ``stop`` is, or the time limit has passed."""
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    return lambda: stop() or time.monotonic() > deadline
