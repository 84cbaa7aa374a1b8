"""Runs side by side in processes of their own, one thread each."""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from typing import TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


def side_by_side(
    function: Callable[[Job], Result], jobs: Iterable[Job], processes: int
) -> Iterator[Result]:
    """Yield ``function(job)`` as they finish, ``processes`` at a time; 1: in this process.

    A job is drawn from ``jobs`` only when a process is free, so the iterable may end early.
    """
    if processes == 1:
        yield from map(function, jobs)
        return
    waiting = iter(jobs)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, max_tasks_per_child=1) as pool:
        running = {pool.submit(function, job) for job in itertools.islice(waiting, processes)}
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
            running |= {pool.submit(function, j) for j in itertools.islice(waiting, len(done))}
