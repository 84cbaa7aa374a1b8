"""Hydra launcher ``slurm``: submitit's, made safe for sweeps of hours.

What it adds to `hydra_plugins.hydra_submitit_launcher`: workers find the repository wherever
they start; a job that dies or is cancelled does not end the sweep that waits for the others; how
a job stands is asked of ``squeue``, so no accounting database is needed; a preempted cell writes
its checkpoint before its job is requeued; arrays no longer than the cluster allows.
"""

from __future__ import annotations

import shlex
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus

from common import RunError
from hydra_plugins.hydra_submitit_launcher import submitit_launcher
from hydra_plugins.hydra_submitit_launcher.config import BaseQueueConf
from sweeps import slurm_queue
from sweeps.signals import stop_signals_received
from sweeps.workers import WorkerDiedError, WorkerStoppedError, failed, python_path, tell_failures

# SLURM's words for a job that was ended from outside; it continues from its checkpoint.
STOPPED = {"CANCELLED", "TIMEOUT", "PREEMPTED", "NODE_FAIL", "DEADLINE", "BOOT_FAIL", "REVOKED"}


class SlurmLauncher(submitit_launcher.SlurmLauncher):
    """Submits every cell as a job of an array and waits until SLURM has none of them any more.

    ``array_size``: jobs per array, at most the cluster's MaxArraySize; ``poll_seconds`` between
    two looks at the queue.  The other parameters are `submitit_slurm`'s.
    """

    def __init__(self, array_size: int = 1000, poll_seconds: float = 10, **params: Any) -> None:
        super().__init__(**params)
        self.array_size = array_size
        self.poll_seconds = poll_seconds
        self._tickets: list[dict[str, Any]] = []

    def reserve(self, count: int) -> list[dict[str, Any]]:
        """Return the tickets of the ``count`` jobs that the next `launch` will submit."""
        self._tickets = slurm_queue.new_tickets(count, self.array_size)
        return self._tickets

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Submit a job for every list of overrides; wait; return how each ended, in order."""
        if len(self._tickets) != len(job_overrides):
            self.reserve(len(job_overrides))
        jobs = self._submit([list(overrides) for overrides in job_overrides], initial_job_idx)
        tickets, self._tickets = self._tickets, []
        results: dict[int, JobReturn] = {}
        names = [ticket["slurm_job_name"] for ticket in tickets]
        while len(results) < len(jobs):
            waiting = [i for i in range(len(jobs)) if i not in results]
            alive = slurm_queue.living(names[i] for i in waiting)
            for i in waiting:
                if alive is not None and (names[i], tickets[i]["array_index"]) not in alive:
                    results[i] = _outcome(jobs[i], job_overrides[i])
            if len(results) < len(jobs):
                time.sleep(self.poll_seconds)
        ended = [results[i] for i in range(len(jobs))]
        tell_failures(ended)
        return ended

    def _submit(self, job_overrides: list[list[str]], first_number: int) -> list[Any]:
        jobs: list[Any] = []
        state = Singleton.get_state()
        while len(jobs) < len(job_overrides):
            start = len(jobs)
            part = job_overrides[start : start + self.array_size]
            numbers = range(first_number + start, first_number + start + len(part))
            executor = self._executor(self._tickets[start]["slurm_job_name"])
            submitted = executor.map_array(
                self,
                part,
                ["hydra.sweep.dir"] * len(part),
                numbers,
                [str(number) for number in numbers],
                [state] * len(part),
            )
            jobs += submitted
            number, name = submitted[0].job_id.split("_")[0], self._tickets[start]["slurm_job_name"]
            print(
                f"SLURM job {number}: {len(part)} cells; they go on without this process, "
                f"scancel -n {name} ends them",
                flush=True,
            )
        return jobs

    def _executor(self, name: str) -> Any:
        import submitit

        given = {key: value for key, value in self.params.items() if value is not None}
        folder = Path(given.pop("submitit_folder")).absolute()
        setup = [f"export PYTHONPATH={shlex.quote(python_path())}", *given.pop("setup", [])]
        try:
            executor = submitit.AutoExecutor(
                folder, cluster="slurm", slurm_max_num_timeout=given.pop("max_num_timeout", 0)
            )
        except RuntimeError as error:
            raise RunError(f"hydra/launcher=slurm: {error}") from None
        shared = set(BaseQueueConf.__dataclass_fields__)
        renamed = {key if key in shared else f"slurm_{key}": v for key, v in given.items()}
        executor.update_parameters(**{**renamed, "name": name, "slurm_setup": setup})
        return executor

    def __call__(self, *arguments: Any) -> JobReturn:
        """Run one job, inside SLURM.

        The signal that submitit asks for before a time limit or a preemption ends training with
        a checkpoint; submitit's own answer, to requeue the job, follows.
        """
        requeue = signal.getsignal(signal.SIGUSR2)
        result = super().__call__(*arguments)
        unfinished = result.status == JobStatus.FAILED
        if unfinished and signal.SIGUSR2 in stop_signals_received() and callable(requeue):
            requeue(signal.SIGUSR2, None)
        return result


def _outcome(job: Any, overrides: Sequence[str]) -> JobReturn:
    """Return what a job that SLURM no longer has left behind."""
    from submitit.core.utils import pickle_load

    path = job.paths.result_pickle
    state = slurm_queue.end_state(job.job_id)
    patience = time.monotonic() + (15 if state in ("COMPLETED", "unknown") else 0)
    while not path.exists() and time.monotonic() < patience:
        time.sleep(0.5)
    if path.exists():
        outcome, content = pickle_load(path)
        if outcome == "success":
            return content
        return failed(overrides, WorkerDiedError(str(content).strip().splitlines()[-1]))
    if state == "OUT_OF_MEMORY":
        return failed(overrides, WorkerDiedError(f"out of memory (SLURM job {job.job_id})"))
    kind = WorkerStoppedError if state in STOPPED else WorkerDiedError
    return failed(overrides, kind(f"SLURM job {job.job_id} ended {state}; log: {job.paths.stderr}"))
