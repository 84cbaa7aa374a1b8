"""A real one-node SLURM with submitit's stock launcher: arrays, preemption, requeueing."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
import torch
from processes import wait_until
from small_sweep import SmallSweep

NODE = Path(__file__).with_name("slurm_node.sh")
pytestmark = pytest.mark.skipif(
    shutil.which("slurmctld") is None or os.geteuid() != 0,
    reason="needs root and: apt-get install -y slurm-wlm munge",
)
# Some variables of a shell inside an allocation; they end the srun of a job that inherits them.
ALLOCATION = {"SLURM_CPU_BIND": "quiet,mask_cpu:0x800", "SLURM_MEM_PER_CPU": "500"}
STEPS = 9000
LONG = (f"recipe.steps={STEPS}", "recipe.validate_every=500")


@pytest.fixture(scope="module", autouse=True)
def node(tmp_path_factory):
    folder = tmp_path_factory.mktemp("slurm")
    os.environ["SLURM_NODE_DIR"] = str(folder)
    os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
    subprocess.run(["bash", NODE, "up"], check=True, timeout=60)
    yield
    subprocess.run(["bash", NODE, "down"], check=True, timeout=60)


@pytest.fixture(scope="module")
def long_undisturbed(tmp_path_factory):
    sweep = SmallSweep(tmp_path_factory.mktemp("long"), *LONG, only="only.dim=16")
    assert sweep.run().returncode == 0
    return sweep.table()


def queue():
    command = ["squeue", "--noheader", "--array", "-o", "%i %T"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(line.split() for line in done.stdout.splitlines())


@pytest.mark.parametrize(
    ("preempt", "more"),
    [(["scancel", "--signal=USR2"], ["force=true"]), (["scontrol", "requeue"], [])],
    ids=["signal", "requeue"],
)
def test_a_preempted_job_continues_from_its_checkpoint(tmp_path, long_undisturbed, preempt, more):
    sweep = SmallSweep(tmp_path, *LONG, *more, only="only.dim=16")
    process = sweep.start("hydra/launcher=slurm_cpu", **ALLOCATION)
    assert wait_until(lambda: [*tmp_path.glob("runs/*/checkpoint.pt")], 180), queue()
    job = next(job for job, state in queue().items() if state == "RUNNING")
    subprocess.run([*preempt, job], check=False)  # may fail even if the signal arrived
    assert wait_until(lambda: queue().get(job) == "PENDING", 180), queue()
    saved = [torch.load(p, weights_only=True) for p in tmp_path.glob("runs/*/checkpoint.pt")]
    assert any(0 < checkpoint["state"]["step"] < STEPS for checkpoint in saved)
    while process.poll() is None:  # SLURM delays a requeued job by two minutes
        for pending in [j for j, state in queue().items() if state == "PENDING"]:
            update = ["scontrol", "update", f"JobId={pending}", "StartTime=now"]
            subprocess.run(update, check=False, capture_output=True)
        time.sleep(1)
    assert process.returncode == 0, (tmp_path / "sweep.log").read_text()
    assert not (tmp_path / "runs/.before").exists()  # nothing was started over
    sweep.check_equal(long_undisturbed)
