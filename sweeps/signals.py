"""Being told to stop: `kill`, SLURM, a time limit."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType

_RECEIVED: list[int] = []
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR2)  # `kill` and SLURM; submitit's warning


def stop_signals_received() -> tuple[int, ...]:
    """Return the signals that told this process's latest cell to stop."""
    return tuple(_RECEIVED)


@contextlib.contextmanager
def stop_signals_noted() -> Iterator[None]:
    """Note the signals that ask this process to stop, instead of dying of them."""
    _RECEIVED.clear()

    def note(number: int, frame: FrameType | None) -> None:
        _RECEIVED.append(number)

    try:
        previous = {number: signal.signal(number, note) for number in _STOP_SIGNALS}
    except ValueError:  # not the main thread: the caller owns the signals
        yield
        return
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def should_stop(time_limit_seconds: float | None) -> Callable[[], bool]:
    """Return the question that training asks after every step; the time counts from now."""
    limit = time_limit_seconds
    deadline = None if limit is None else time.monotonic() + limit
    return lambda: bool(_RECEIVED) or (deadline is not None and time.monotonic() > deadline)
