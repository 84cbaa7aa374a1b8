"""`torchrun train.py`: one cell by two processes, as a person starts it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import TINY

import cli

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CELL = [
    *(word for word in TINY if not word.startswith("recipe.")),
    "recipe.steps=60", "recipe.validate_every=20", "recipe.stop_at=null", "recipe.batch_size=17",
    "recipe.precision=float32", "model.mixer._target_=dying_mixer.DyingAttention",
    "checkpoint_seconds=0.001",
]  # fmt: skip
PATHS = os.pathsep.join([str(ROOT), str(HERE)])


def torchrun(folder, *arguments, **environment):
    """Run train.py by two processes; return what became of it."""
    command = "-m torch.distributed.run --standalone --nproc-per-node=2".split()
    return subprocess.run(
        [sys.executable, *command, str(ROOT / "train.py"), *arguments],
        cwd=folder, capture_output=True, text=True, timeout=500, check=False,
        env={**os.environ, "PYTHONPATH": PATHS, "OMP_NUM_THREADS": "1", **environment},
    )  # fmt: skip


def curve(folder):
    (path,) = folder.glob("runs/*/curve.csv")
    return pd.read_csv(path).drop(columns="seconds").to_numpy()


def test_a_dead_process_costs_no_result(command, tmp_path_factory, monkeypatch):
    """The first attempt loses a process and is unfinished; the second ends as one process does."""
    folder = tmp_path_factory.mktemp("two")
    died = torchrun(folder, *CELL, DIES="1")
    assert died.returncode != 0
    path = next(folder.glob("runs/*/record.json"), None)
    assert path is not None, died.stderr
    record = json.loads(path.read_text())
    assert record["status"] == "unfinished"
    assert "continues from the checkpoint" in record["reason"]

    resumed = torchrun(folder, *CELL)
    assert resumed.returncode == 0, resumed.stderr
    record = json.loads(path.read_text())
    assert (record["status"], record["steps"]) == ("done", 60)
    assert record["device"].endswith(", 2 processes")
    assert len(resumed.stdout.splitlines()) == 1
    assert len(pd.read_csv(folder / "results/manual/results.csv")) == 1

    monkeypatch.syspath_prepend(HERE)
    assert command("train.py", *CELL).status == 0
    (alone,) = command.folder.glob("runs/*/record.json")
    assert alone.parent.name == path.parent.name
    np.testing.assert_allclose(curve(folder), curve(command.folder), rtol=1e-4)


def test_the_others_hear_of_a_finished_cell(command, tmp_path):
    assert command("train.py", *TINY).status == 0
    again = torchrun(tmp_path, *TINY)
    assert again.returncode == 0, again.stderr
    assert len(again.stdout.splitlines()) == 1


@pytest.mark.parametrize("arguments", [["-m", "seed=0,1"], ["seeds=[0,1]"]])
def test_torchrun_is_for_one_cell(command, monkeypatch, arguments):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    outcome = command("train.py", *arguments, *TINY)
    assert outcome.status == 2
    assert "torchrun trains one cell" in outcome.line


def test_a_bad_call_is_told_once(monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank, lines in (("0", 1), ("1", 0)):
        monkeypatch.setenv("RANK", rank)
        with pytest.raises(SystemExit):
            cli._leave(2, "seed=x: must be a number")
        assert len(capsys.readouterr().err.splitlines()) == lines
