"""The local launcher: worker processes, crashes and time limits."""

import errno
import itertools
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time

import pytest
from hydra.core.utils import JobReturn, JobStatus
from processes import ROOT, wait_until

from common import RunError, UserError
from hydra_plugins import local_launcher
from hydra_plugins.local_launcher import LocalLauncher


def failure_of(result):
    return result._return_value if result.status == JobStatus.FAILED else None


def work(payload, path):
    """Stand-in for a job: evaluates its last override as Python code and returns the value."""
    overrides = pickle.loads(payload)[3]
    value = eval(overrides[-1], {"os": os, "signal": signal, "time": time})
    result = JobReturn(overrides=overrides, status=JobStatus.COMPLETED, _return_value=value)
    path.write_bytes(pickle.dumps(result))


@pytest.fixture
def launch(monkeypatch):
    """Return a function that launches code, `jobs` at a time, for at most `seconds`."""
    fork = multiprocessing.get_context("fork")
    monkeypatch.setattr(local_launcher, "_work", work)
    monkeypatch.setattr(local_launcher.multiprocessing, "get_context", lambda method: fork)

    def launch(*codes, jobs=2, seconds=None):
        launcher = LocalLauncher(jobs)
        launcher.setup(hydra_context=None, task_function=None, config=None)
        if seconds is not None:
            launcher.stop_after(seconds)
        return launcher.launch([[code] for code in codes], 0)

    return launch


def test_results_of_any_size_are_returned_in_order(launch):
    results = launch("time.sleep(0.5)", "2", "'x' * 10**7", "os.getpid()", "os.getpid()")
    assert [result.overrides for result in results][1] == ["2"]
    values = [result.return_value for result in results]
    assert values[:2] == [None, 2] and len(values[2]) == 10**7
    assert values[3] != values[4] and os.getpid() not in values


def test_number_of_concurrent_jobs_is_limited(launch):
    spans = "(time.monotonic(), time.sleep(0.2), time.monotonic())"
    results = [result.return_value for result in launch(*[spans] * 3, jobs=1)]
    assert all(before[2] <= after[0] for before, after in itertools.pairwise(results))


@pytest.mark.parametrize(
    ("code", "how"),
    [("os.kill(os.getpid(), signal.SIGKILL)", "killed by signal 9"), ("os._exit(7)", "status 7")],
)
def test_a_worker_that_dies_does_not_affect_other_jobs(launch, capsys, code, how):
    died, other = launch(code, "1 + 1", jobs=1)
    assert how in str(failure_of(died))
    assert other.return_value == 2
    assert how in capsys.readouterr().err


def test_jobs_stop_at_the_time_limit_without_counting_as_crashed(launch):
    started = time.monotonic()
    ended, waiting = launch("time.sleep(60)", "3", jobs=1, seconds=0.3)
    assert time.monotonic() - started < 20
    for result in (ended, waiting):
        assert "out of time" in str(failure_of(result))


def test_a_job_that_handles_the_time_limit_returns_its_result(launch):
    handles_sigterm = "[signal.signal(signal.SIGTERM, lambda *_: None), time.sleep(4), 'saved'][-1]"
    [result] = launch(handles_sigterm, seconds=3)
    assert result.return_value == "saved"


class OddError(Exception):
    def __init__(self, code, text):
        super().__init__(f"{code}: {text}")


@pytest.mark.parametrize(
    ("failure", "kind", "said", "traceback"),
    [(UserError("model.dim=x"), UserError, "model.dim=x", False),
     (RunError("diverged"), RunError, "diverged", False),
     (PermissionError(errno.EACCES, "denied", "runs"), UserError, "runs: denied", False),
     (ValueError("a bug"), RuntimeError, "a bug", True),
     (OddError(3, "not to be pickled"), RuntimeError, "3: not to be pickled", True)],
)  # fmt: skip
def test_exceptions_of_jobs_are_passed_on_and_printed(failure, kind, said, traceback, capsys):
    result = JobReturn(status=JobStatus.FAILED, _return_value=failure)
    found = failure_of(pickle.loads(local_launcher._pickled(result)))
    assert type(found) is kind and said in str(found)
    shown = capsys.readouterr().err
    assert said in shown and ("Traceback" in shown or not traceback)
    assert traceback or shown == f"error: {said}\n"


def test_ctrl_c_stops_a_multirun_and_its_workers_save_checkpoints(tmp_path):
    words = ["task=lis", "task.size=3", "data.train=400", "data.test=20", "recipe.steps=1000000",
             "recipe.stop_at=null", "model.num_layers=1", "logger=none", "seed=0,1,2"]  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "train.py"), "-m", "hydra.launcher.jobs=2", *words],
        cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        # Background jobs of a shell ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    files = "runs/*/progress.json"
    wait_until(lambda: any('"step"' in path.read_text() for path in tmp_path.glob(files)), 120)
    process.send_signal(signal.SIGINT)
    _, shown = process.communicate(timeout=120)  # surviving workers would keep the pipe open
    assert process.returncode == 130, shown
    assert "Traceback" not in shown
    assert list(tmp_path.glob("runs/*/checkpoint.pt"))
