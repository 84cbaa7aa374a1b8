"""Ray loses workers; the sweep loses nothing."""

import importlib.util
import os
import signal
import time
from pathlib import Path

import pytest
from small_sweep import CELLS, SmallSweep, descendants

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="needs Ray: pip install 'ray>=2.55'"
)
RAY = ("hydra/launcher=ray", "+hydra.launcher.ray.init.num_cpus=2")


def kill_one_in_training(sweep, process, marks, seconds=180):
    """SIGKILL a worker, known by its command line, while some cell is in training."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(0.1)
        if not list(sweep.folder.glob("runs/*/checkpoint.pt")):
            continue
        for pid in descendants(process.pid):
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if any(mark in command for mark in marks):
                os.kill(pid, signal.SIGKILL)
                return
    raise AssertionError((sweep.folder / "sweep.log").read_text())


@needs_ray
def test_ray_tries_a_killed_worker_again(tmp_path, undisturbed, count):
    sweep = SmallSweep(tmp_path)
    process = sweep.start(*RAY)
    kill_one_in_training(sweep, process, [b"ray::_perform"])
    assert process.wait(300) == 0, (tmp_path / "sweep.log").read_text()
    sweep.check_equal(undisturbed)
    count("1 of 2 Ray workers killed, its cell tried again, table equal")


@needs_ray
def test_a_cell_whose_ray_worker_is_lost_for_good_fails_alone(tmp_path, undisturbed, count):
    sweep = SmallSweep(tmp_path)
    process = sweep.start(*RAY, "+hydra.launcher.ray.remote.max_retries=0")
    kill_one_in_training(sweep, process, [b"ray::_perform"])
    assert process.wait(300) == 1
    records = sweep.records()
    failed = [record for record in records if record["status"] == "failed"]
    assert len(records) == CELLS and len(failed) == 1 and "Ray" in failed[0]["reason"]
    again = sweep.run(*RAY, "retry_failed=true")
    assert again.returncode == 0, again.stderr
    sweep.check_equal(undisturbed)
    count(f"reason: {failed[0]['reason'][:60]}")


@pytest.mark.parametrize("launcher", ["local", pytest.param("ray", marks=needs_ray)])
def test_a_cell_that_diverges_fails_alone(tmp_path, launcher):
    """Not a number, with every launcher: recorded with its reason, exit status 1."""
    sweep = SmallSweep(
        tmp_path, "recipe.learning_rate=1e30", "recipe.warmup=0.0", "recipe.gradient_clip=null",
        only="only.dim=16",
    )  # fmt: skip
    done = sweep.run(f"hydra/launcher={launcher}")
    assert done.returncode == 1
    reasons = [record["reason"] for record in sweep.records()]
    assert len(reasons) == 3 and all("diverged" in r or "finite" in r for r in reasons)
