"""Hydra launcher ``local``: every job a process of its own on this machine.

Why not joblib: a worker killed there (out of memory, a signal) takes the whole multirun with it,
and its processes are reused.  Here a job starts clean, dies alone, is tried again, and a fork of
a server that has torch loaded starts it in milliseconds.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Collection, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from hydra.core.utils import JobReturn, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from common import RunError, UserError
from sweeps.workers import (
    NeverStartedError,
    WorkerDiedError,
    WorkerStoppedError,
    failed,
    job_payload,
    perform,
    tell_failures,
)


def _require_whole(key: str, value: Any, most: int, other: str = "") -> None:
    if type(value) is not int or not 1 <= value <= most:
        told = f"must be a whole number from 1 to {most}{other}"
        raise UserError(f"hydra.launcher.{key}={value}: {told}")


class LocalLauncher(Launcher):
    """Runs jobs side by side, each in a process of its own.

    ``jobs`` at a time (None: one per core); ``attempts`` for a job whose process dies.
    """

    def __init__(self, jobs: int | None = None, attempts: int = 3) -> None:
        if jobs is not None:
            _require_whole("jobs", jobs, 1024, ", or null")
        _require_whole("attempts", attempts, 100)
        self.jobs = jobs or len(os.sched_getaffinity(0))
        self.attempts = attempts
        self._deadline = math.inf
        self.config: DictConfig
        self.task_function: TaskFunction
        self.hydra_context: HydraContext

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Take what every job needs."""
        self.config = config
        self.hydra_context = hydra_context
        self.task_function = task_function

    def stop_after(self, seconds: float) -> None:
        """Start no job and end the running ones, checkpointed, once ``seconds`` have passed."""
        self._deadline = time.monotonic() + seconds

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Run every list of overrides as a job; return what they returned, in order."""
        setup_globals()
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["sweeps.heedless", "torch", "sweeps.job"])
        waiting = [(index, 1) for index in range(len(job_overrides))]
        results: dict[int, JobReturn] = {}
        running: dict[Any, _Job] = {}
        try:
            while (waiting and not self._late()) or running:
                while waiting and len(running) < self.jobs and not self._late():
                    index, attempt = waiting.pop(0)
                    payload = job_payload(self, job_overrides[index], initial_job_idx + index)
                    job = _started(context, payload, index, attempt)
                    running[job.process.sentinel] = job
                for job in self._ended(running):
                    result = job.result()
                    if result is None and job.attempt < self.attempts and not self._late():
                        waiting.append((job.index, job.attempt + 1))
                        continue
                    results[job.index] = result or self._died(job, job_overrides[job.index])
        finally:
            _stop(running.values())
        for index, _ in waiting:
            results[index] = failed(job_overrides[index], NeverStartedError("out of time"))
        ended = [results[index] for index in range(len(job_overrides))]
        tell_failures(ended)
        return ended

    def _late(self) -> bool:
        return time.monotonic() > self._deadline

    def _ended(self, running: dict[Any, _Job]) -> list[_Job]:
        """Wait for jobs to send results or to end; return those that ended.

        At the deadline, tell all of them to.  A result is read while its job runs: one longer than
        a pipe holds keeps the job until then.
        """
        left = self._deadline - time.monotonic()
        if left <= 0:
            for job in running.values():
                job.process.terminate()
        unheard = {job.receiver: job for job in running.values() if not job.heard}
        timeout = None if left <= 0 or left == math.inf else left
        ready = wait([*running, *unheard], timeout=timeout)
        for one in ready:
            if one in unheard:
                unheard[one].receive()
        return [running.pop(one) for one in ready if one in running]

    def _died(self, job: _Job, overrides: Sequence[str]) -> JobReturn:
        code = job.process.exitcode
        if self._late() and code == -signal.SIGTERM:  # told to stop before it could hear
            return failed(overrides, WorkerStoppedError("stopped as it began; run again"))
        how = f"killed by signal {-code}" if code and code < 0 else f"exit status {code}"
        failure = WorkerDiedError(
            f"the process of {' '.join(overrides)} died ({how}), {job.attempt} times"
        )
        print(f"error: {failure}", file=sys.stderr)
        return failed(overrides, failure)


def _started(context: Any, payload: bytes, index: int, attempt: int) -> _Job:
    """Return a running job, also where the server that forks them has just been killed."""
    for patience in (0.1, 1.0, None):
        try:
            return _Job(context, payload, index, attempt)
        except (OSError, EOFError) as error:
            if patience is None:
                raise RunError(f"no process can be started ({error}); run again") from None
            time.sleep(patience)
    raise AssertionError


class _Job:
    """One process and the two pipes to it: its result, and a line that breaks when we die."""

    def __init__(self, context: Any, payload: bytes, index: int, attempt: int) -> None:
        self.index = index
        self.attempt = attempt
        self.heard = False
        self._message: bytes | None = None
        self.receiver, sender = context.Pipe(duplex=False)
        lifeline, self._alive = context.Pipe(duplex=False)
        self.process = context.Process(target=_work, args=(payload, sender, lifeline))
        self.process.start()
        sender.close()
        lifeline.close()

    def receive(self) -> None:
        """Take what the job sends, whole; nothing when it dies before that."""
        self.heard = True
        with contextlib.suppress(EOFError, OSError):
            self._message = self.receiver.recv_bytes()

    def result(self) -> JobReturn | None:
        """Return what the job sent before its process ended, None when it died first."""
        if not self.heard and self.receiver.poll():
            self.receive()
        self.process.join()
        self.receiver.close()
        self._alive.close()
        return pickle.loads(self._message) if self._message else None


def _stop(jobs: Collection[_Job]) -> None:
    """Ask all jobs to checkpoint and end; insist after ten seconds."""
    deadline = time.monotonic() + 10
    alive = [job.process for job in jobs if job.process.is_alive()]
    for process in alive:
        process.terminate()
    for process in alive:
        process.join(max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()


def _work(payload: bytes, sender: Connection, lifeline: Connection) -> None:
    """Run one job in its own process and send back what it returned."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(lifeline,), daemon=True).start()
    with contextlib.suppress(BrokenPipeError):  # whoever asked is gone; the record is written
        sender.send_bytes(perform(payload))


def _end_with_parent(lifeline: Connection) -> None:
    """Wait for the launcher's end of the pipe to close, then end this process as `kill` would."""
    try:
        lifeline.recv_bytes()
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)
