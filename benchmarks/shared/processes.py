"""Runs in processes of their own, one after another or side by side."""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, ThreadPoolExecutor, wait
from typing import Any, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


def in_new_process(function: Callable[..., Result], *arguments: Any) -> Result:
    """Return ``function(*arguments)`` from a fresh process.

    Raises `BrokenProcessPool` when that is killed.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *arguments).result()


def side_by_side(
    function: Callable[[Job], Result], jobs: Iterable[Job], processes: int
) -> Iterator[Result]:
    """Yield ``function(job)`` as they finish, each from a fresh process, ``processes`` at a time.

    With 1, all run in this process.  A job is drawn from ``jobs`` only when a process is free, so
    the iterable may end early.
    """
    if processes == 1:
        yield from map(function, jobs)
        return
    waiting = iter(jobs)
    with ThreadPoolExecutor(processes) as threads:

        def started(count: int) -> set:
            some = itertools.islice(waiting, count)
            return {threads.submit(in_new_process, function, job) for job in some}

        running = started(processes)
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
            running |= started(len(done))
