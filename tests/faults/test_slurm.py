"""A real SLURM of one node: preemption, requeueing, a sweep that dies while its jobs wait."""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from small_sweep import CELLS, SmallSweep

NODE = Path(__file__).with_name("slurm_node.sh")
needs_slurm = pytest.mark.skipif(
    shutil.which("slurmctld") is None or os.geteuid() != 0,
    reason="needs root and: apt-get install -y slurm-wlm munge",
)
pytestmark = [needs_slurm]
LAUNCHER = ("hydra/launcher=slurm_cpu", "hydra.launcher.poll_seconds=1")
LONG = ("recipe.steps=2000", "recipe.validate_every=500")


@pytest.fixture(scope="module", autouse=True)
def node(tmp_path_factory):
    folder = tmp_path_factory.mktemp("slurm")
    os.environ["SLURM_NODE_DIR"] = str(folder)
    os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
    subprocess.run([NODE, "up"], check=True, timeout=60)
    yield
    subprocess.run([NODE, "down"], check=True, timeout=60)


@pytest.fixture(scope="module")
def long_undisturbed(tmp_path_factory):
    sweep = SmallSweep(tmp_path_factory.mktemp("long"), *LONG, only="only.dim=16")
    assert sweep.run().returncode == 0
    return sweep.table()


def queue(form="%i %T"):
    command = ["squeue", "--noheader", "--array", "-o", form]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [line.split() for line in done.stdout.splitlines()]


def wait_for(condition, seconds=180):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {seconds} s in vain; queue: {queue()}"
        time.sleep(0.3)
    return found


def job_in_training(sweep):
    """Return (job, run) of a cell that has written a checkpoint and is not through."""

    def find():
        for run in sweep.folder.glob("runs/*/checkpoint.pt"):
            ticket = (run.parent / "queued.json").read_text()
            for job, state, name, index in queue("%i %T %j %K"):
                mine = name in ticket and f'"array_index": {index}' in ticket
                if mine and state == "RUNNING" and not (run.parent / "record.json").exists():
                    return job, run.parent
        return None

    return wait_for(find)


def start_at_once(job):
    """SLURM holds a requeued job back for a minute or two; do not wait for that."""
    subprocess.run(["scontrol", "update", f"JobId={job}", "StartTime=now"], check=False)


@pytest.mark.parametrize(
    "preempt",
    [["scancel", "--signal=USR2"], ["scontrol", "requeue"]],
    ids=["signal before the time limit", "requeued by the operator"],
)
def test_a_preempted_cell_continues_from_its_checkpoint(tmp_path, long_undisturbed, preempt, count):
    sweep = SmallSweep(tmp_path, *LONG, only="only.dim=16")
    process = sweep.start(*LAUNCHER)
    job, run = job_in_training(sweep)
    # scancel may fail although the signal came through: the job is then being requeued.
    subprocess.run([*preempt, job], check=False)
    unfinished = wait_for(lambda: [r for r in sweep.records() if r["status"] == "unfinished"])
    assert unfinished[0]["cell"] == run.name
    wait_for(lambda: any(j == job and state == "PENDING" for j, state in queue()))
    kept = run / "checkpoint.pt"
    steps = _step(kept)
    assert 0 < steps < 2000
    start_at_once(job)
    assert process.wait(300) == 0, (tmp_path / "sweep.log").read_text()
    sweep.check_equal(long_undisturbed)
    count(f"job {job} stopped at step {steps} of 2000, requeued, table equal")


def _step(checkpoint):
    import torch

    return torch.load(checkpoint, weights_only=True)["state"]["step"]


@contextlib.contextmanager
def jobs_held_back():
    """Jobs can be submitted and none starts."""

    def partition(state):
        command = ["scontrol", "update", "PartitionName=main", f"State={state}"]
        subprocess.run(command, check=True)

    partition("DOWN")
    try:
        yield
    finally:
        partition("UP")


def test_a_dead_sweep_leaves_its_jobs_which_nobody_launches_again(tmp_path, undisturbed, count):
    sweep = SmallSweep(tmp_path)
    with jobs_held_back():
        first = sweep.start(*LAUNCHER)
        wait_for(lambda: len(queue()) == CELLS)
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
        plan = sweep.run("dry_run=true")
        assert plan.returncode == 0, plan.stderr
        assert "to run: 0" in plan.stdout and "queued" in plan.stdout
        second = sweep.run()
        assert "cells to run" not in second.stdout
        assert second.returncode == 1 and "queued" in second.stderr
    wait_for(lambda: not queue())
    last = sweep.run()
    assert last.returncode == 0 and "cells to run" not in last.stdout
    sweep.check_equal(undisturbed)
    count(f"{CELLS} jobs outlived the sweep that submitted them; none launched twice")


def test_a_cancelled_and_a_killed_job_are_told_apart_and_the_others_go_on(
    tmp_path, long_undisturbed, count
):
    sweep = SmallSweep(tmp_path, *LONG, only="only.dim=16")
    process = sweep.start(*LAUNCHER)
    cancelled, first = job_in_training(sweep)
    subprocess.run(["scancel", cancelled], check=True)
    wait_for(lambda: (first / "record.json").exists())
    killed, second = job_in_training(sweep)
    os.kill(_worker(killed), signal.SIGKILL)
    assert process.wait(300) == 1
    found = {record["cell"]: record for record in sweep.records()}
    assert found[first.name]["status"] == "unfinished"
    assert found[second.name]["status"] == "failed" and "SLURM job" in found[second.name]["reason"]
    assert sorted(record["status"] for record in found.values()) == ["done", "failed", "unfinished"]
    again = sweep.run("retry_failed=true", *LAUNCHER)
    assert again.returncode == 0, again.stderr
    sweep.check_equal(long_undisturbed)
    count(f"reason of the killed one: {found[second.name]['reason'][:60]}")


def _worker(job):
    """Return the process of our job, by what its environment says."""
    array, _, place = job.partition("_")
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            words = environment.read_bytes().split(b"\0")
            command = (environment.parent / "cmdline").read_bytes()
        except OSError:
            continue
        wanted = {f"SLURM_ARRAY_JOB_ID={array}".encode(), f"SLURM_ARRAY_TASK_ID={place}".encode()}
        if wanted <= set(words) and b"submitit.core._submit" in command.split(b"\0"):
            return int(environment.parent.name)
    raise AssertionError(f"no process of job {job}")
