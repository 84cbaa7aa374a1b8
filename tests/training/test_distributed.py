import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from together import CASES, STOP_AFTER, TASK, curves

from common import UserError
from training.batches import SequenceTensors
from training.distributed import Processes, own_device

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
GIVEN = os.environ.get("PYTHONPATH")
PATHS = os.pathsep.join([str(ROOT), str(HERE), *([GIVEN] if GIVEN else [])])


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """What two processes that torchrun started came to."""
    command = "-m torch.distributed.run --standalone --nproc-per-node=2".split()
    folder = tmp_path_factory.mktemp("together")
    done = subprocess.run(
        [sys.executable, *command, str(HERE / "together.py"), str(folder)],
        capture_output=True, text=True, timeout=500, check=False,
        env={**os.environ, "PYTHONPATH": PATHS, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_two_processes_have_the_curve_of_one(together, tmp_path):
    assert together["size"] == 2
    for name, alone in curves(tmp_path).items():
        found = together["curves"][name]
        np.testing.assert_allclose(found["curve"], alone["curve"], rtol=1e-4, err_msg=name)
        assert found["agree"]
    partly = together["curves"]["partly right, stopped early"]["curve"]
    assert [row[3] for row in partly if 0 < row[3] < 1] and partly[-1][0] < 200


def test_all_stop_when_one_is_told_to_and_resume_to_the_same_weights(together):
    assert together["interrupted"] == {
        "stopped_at": STOP_AFTER, "steps": 30, "same": True, "agree": True,
    }  # fmt: skip


def test_only_the_first_process_writes(together):
    folders = [*CASES, "parts", "whole"]
    expected = {f"{name}/{file}" for name in folders for file in ("checkpoint.pt", "curve.csv")}
    assert set(together["files"]) == expected


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("batch", [1, 2, 7])
def test_shares_make_up_the_batch(size, batch):
    index = torch.arange(batch) * 2
    shares = [Processes(rank, size).share(index) for rank in range(size)]
    assert sorted(torch.cat(shares).tolist()) == index.tolist()
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_num_targets_counts_the_loss_mask():
    sequences = SequenceTensors(TASK.draw(0, 1, 0, 20))
    index = torch.tensor([3, 5, 11])
    assert sequences.num_targets(index) == sequences.batch(index).loss_mask.sum()


def test_dropout_differs_between_processes_and_repeats_for_one():
    def drawn(rank, step):
        Processes(rank, 2).seed_step(7, step)
        return torch.rand(4).tolist()

    assert drawn(0, 3) == drawn(0, 3)
    assert len({tuple(drawn(rank, step)) for rank in (0, 1) for step in (3, 4)}) == 4


def test_under_torchrun_a_numbered_gpu_is_refused(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match="cuda:1"):
        own_device("cuda:1")
    assert own_device("cpu").type == "cpu"


def test_there_must_be_a_gpu_for_every_process(monkeypatch):
    for name, value in (("RANK", 1), ("LOCAL_RANK", 1), ("WORLD_SIZE", 2), ("LOCAL_WORLD_SIZE", 2)):
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(UserError, match="1 CUDA devices"):
        own_device("auto")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert own_device("auto") == torch.device("cuda", 1)
