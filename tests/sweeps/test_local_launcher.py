"""How the local launcher tells of jobs whose process said nothing."""

import signal
from types import SimpleNamespace

import pytest

from hydra_plugins.local_launcher import LocalLauncher, _stop
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
