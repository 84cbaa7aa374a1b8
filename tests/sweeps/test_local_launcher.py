"""How the local launcher tells of jobs whose process said nothing."""

import multiprocessing
import pickle
import signal
import time
from types import SimpleNamespace

import pytest
from hydra.core.utils import JobReturn, JobStatus

from common import RunError, UserError
from hydra_plugins import local_launcher
from hydra_plugins.local_launcher import LocalLauncher, _Job, _stop
from sweeps import workers
from sweeps.launch import failure_of
from sweeps.workers import WorkerDiedError, WorkerStoppedError


def ended(code, seconds_left):
    """What is told of a job whose process ended with ``code`` so long before the deadline."""
    launcher = LocalLauncher(jobs=1)
    launcher.stop_after(seconds_left)
    job = SimpleNamespace(process=SimpleNamespace(exitcode=code), attempt=1)
    return failure_of(launcher._died(job, ["seed=0"]))


def test_a_job_stopped_at_the_deadline_before_it_could_hear_has_not_failed():
    assert isinstance(ended(-signal.SIGTERM, -1.0), WorkerStoppedError)


@pytest.mark.parametrize(
    ("code", "seconds_left"), [(-signal.SIGTERM, 60.0), (-signal.SIGKILL, -1.0), (1, -1.0)]
)
def test_other_deaths_are_failures(code, seconds_left, capsys):
    assert isinstance(ended(code, seconds_left), WorkerDiedError)
    assert "seed=0 died" in capsys.readouterr().err


class Process:
    """A process that ends when it is told to, or only when it is killed."""

    def __init__(self, name, calls, heeds):
        self.name, self.calls, self.heeds, self.alive = name, calls, heeds, True

    def is_alive(self):
        return self.alive

    def terminate(self):
        self.calls.append(f"terminate {self.name}")
        self.alive = not self.heeds

    def kill(self):
        self.calls.append(f"kill {self.name}")
        self.alive = False

    def join(self, timeout=None):
        assert timeout is None or timeout <= 10


def test_all_jobs_are_told_before_one_is_waited_for_and_only_the_deaf_are_killed():
    calls = []
    jobs = [SimpleNamespace(process=Process(i, calls, heeds=i != 1)) for i in range(3)]
    jobs[2].process.alive = False
    _stop(jobs)
    assert calls == ["terminate 0", "terminate 1", "kill 1"]


@pytest.mark.parametrize("size", [10, 10**7])
def test_a_result_of_any_size_arrives(monkeypatch, size):
    """A pipe holds 64 KiB: the job ends only once somebody reads."""
    monkeypatch.setattr(local_launcher, "perform", lambda payload: pickle.dumps("x" * size))
    launcher = LocalLauncher(jobs=2)
    jobs = [_Job(multiprocessing.get_context("fork"), b"", index, 1) for index in range(2)]
    running, ended = {job.process.sentinel: job for job in jobs}, []
    deadline = time.monotonic() + 20.0
    launcher.stop_after(20.0)
    while running and time.monotonic() < deadline:
        ended += launcher._ended(running)
    _stop(running.values())
    assert sorted(job.index for job in ended) == [0, 1]
    assert [job.result() for job in ended] == ["x" * size] * 2


class OddError(Exception):
    def __init__(self, code, text):
        super().__init__(f"{code}: {text}")


@pytest.mark.parametrize(
    ("failure", "kind"),
    [(UserError("no " * 10**5), UserError), (RunError("no " * 10**5), RunError),
     (OddError(3, "no " * 10**5), RunError), (OddError(3, "short"), RunError),
     (UserError("short"), UserError), (ValueError("short"), ValueError)],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
def test_the_text_of_a_failure_is_cut_before_it_is_sent(failure, kind):
    result = JobReturn(status=JobStatus.FAILED)
    result.return_value = failure
    told = failure_of(pickle.loads(workers.packed(result)))
    assert type(told) is kind
    assert len(str(told)) < 3000
    assert str(told).removeprefix("OddError: ")[:5] in str(failure)


def test_every_failed_job_but_the_first_is_told(capsys):
    def ended(status, value, *overrides):
        result = JobReturn(overrides=list(overrides), status=status)
        result.return_value = value
        return result

    bad, died = UserError("model.dim='x': must be a number"), workers.WorkerDiedError("told")
    workers.tell_failures(
        [ended(JobStatus.FAILED, bad, "model.dim=7"), ended(JobStatus.COMPLETED, None, "seed=1"),
         ended(JobStatus.FAILED, bad, "model.dim=x", "seed=1"), ended(JobStatus.FAILED, died),
         ended(JobStatus.FAILED, bad, "model.dim=y", "under_sweep=true")]
    )  # fmt: skip
    assert capsys.readouterr().err == (
        "error: model.dim=x seed=1: model.dim='x': must be a number\n"
    )
