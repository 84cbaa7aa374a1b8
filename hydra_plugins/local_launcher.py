"""Hydra launcher `local`: every job in its own process on this machine. Unlike with joblib's
launcher, a killed job does not affect the others."""

import math
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import cloudpickle
from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, run_job, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict

from common import RunError, UserError, failure_of, is_bad_path, write_bytes


class LocalLauncher(Launcher):
    """Runs `jobs` at a time (None: one per core)."""

    def __init__(self, jobs: int | None = None) -> None:
        from loky import cpu_count  # respects container CPU limits; imported here: it takes 0.1 s

        self.jobs = cpu_count() if jobs is None else jobs
        self._deadline = math.inf
        self._processes: set[Any] = set()
        self._shared: Collection[str] = ()  # in every job
        # `start` and `join` poll all children; an exit code can be read only once.
        self._reaping = threading.Lock()

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        if not isinstance(self.jobs, int) or self.jobs < 1:
            raise UserError(f"hydra.launcher.jobs={self.jobs}: must be a positive integer")
        self._job = (hydra_context, task_function, config)

    def stop_after(self, seconds: float) -> None:
        """After `seconds`, start no more jobs and stop the running ones at a checkpoint."""
        self._deadline = time.monotonic() + seconds

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Run every list of overrides as a job; returns the results in order."""
        setup_globals()
        total = initial_job_idx + len(job_overrides)
        self._shared = set.intersection(*map(set, job_overrides)) if len(job_overrides) > 1 else ()
        with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(self.jobs) as pool:
            futures = [
                pool.submit(self._run, list(overrides), number, Path(folder) / str(number), total)
                for number, overrides in enumerate(job_overrides, initial_job_idx)
            ]
            try:
                return [future.result() for future in futures]
            except BaseException:
                self._deadline = -math.inf
                for process in list(self._processes):
                    process.terminate()
                raise

    def _run(self, overrides: list[str], number: int, path: Path, total: int) -> JobReturn:
        """Run one job in a process and wait for it; called in a thread."""
        if time.monotonic() > self._deadline:
            return _failed(overrides, RunError("out of time, not started"))
        payload = cloudpickle.dumps((*self._job, overrides, number, total, Singleton.get_state()))
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["torch", "torch._dynamo", "experiments.run"])
        process = context.Process(target=_work, args=(payload, path))
        with self._reaping:
            process.start()
        self._processes.add(process)
        ended = False
        while not ended and (left := self._deadline - time.monotonic()) > 0:
            # The system cannot wait longer than 24 days at once.
            ended = bool(wait([process.sentinel], min(left, 3600)))
        if not ended:
            process.terminate()  # training writes its checkpoint and ends
            wait([process.sentinel])
        with self._reaping:
            process.join()
        self._processes.discard(process)
        if path.exists():
            return pickle.loads(path.read_bytes())
        code = process.exitcode or 0
        if code == -signal.SIGTERM and time.monotonic() > self._deadline:
            return _failed(overrides, RunError("out of time before it began"))
        how = f"killed by signal {-code}" if code < 0 else f"exit status {code}"
        own = " ".join(word for word in overrides if word not in self._shared)
        print(f"error: {own}: process {how}", file=sys.stderr)
        return _failed(overrides, RunError(f"its process ended without a result ({how})"))


def _failed(overrides: list[str], error: Exception) -> JobReturn:
    result = JobReturn(overrides=overrides, status=JobStatus.FAILED)
    result.return_value = error
    return result


def _work(payload: bytes, path: Path) -> None:
    """Run one job in this process, and write its pickled `JobReturn` to `path`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    context, task_function, config, overrides, number, total, singletons = pickle.loads(payload)
    setup_globals()
    Singleton.set_state(singletons)
    job_config = context.config_loader.load_sweep_config(config, overrides)
    with open_dict(job_config):
        job_config.hydra.job.id = f"{number + 1}/{total}"
        job_config.hydra.job.num = number
    HydraConfig.instance().set_config(job_config)
    result = run_job(
        hydra_context=context,
        task_function=task_function,
        config=job_config,
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
        configure_logging=False,
    )
    result.cfg = result.hydra_cfg = None
    write_bytes(path, _pickled(result))


def _pickled(result: JobReturn) -> bytes:
    """The pickled result, after printing why it failed."""
    error = failure_of(result)
    if isinstance(error, OSError) and is_bad_path(error):
        error = result.return_value = UserError(f"{error.filename}: {error.strerror}")
    if isinstance(error, UserError | RunError):
        print(f"error: {error}", file=sys.stderr)
    elif error is not None:
        traceback.print_exception(error)
        # An exception of any other class may not survive pickling.
        result.return_value = RuntimeError(f"{type(error).__name__}: {error}")
    return cloudpickle.dumps(result)


def _end_with_parent() -> None:
    """Terminate this process when the launcher's process is gone."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
