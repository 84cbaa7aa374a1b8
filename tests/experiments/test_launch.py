"""Parallel sweeps: lost workers, cells that share a training run, two processes in one folder."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from unittest.mock import Mock

import pandas as pd
import pytest
import torch
from hydra.core.utils import JobReturn, JobStatus
from processes import wait_until
from submitit.core.utils import UncompletedJobError
from tiny_cell import TINY

from common import UserError, write_json
from experiments import display
from experiments.estimate import training_flops
from experiments.grid import cell_of, experiment_from
from experiments.launch import launch_cells
from experiments.names import cell_name, run_name
from experiments.plan import Sweep
from experiments.run import run_and_report, run_cell
from experiments.run_folder import Run
from training.device import device_name

DYING = """
import os, signal
from models.standard import StandardAttention

class Dying(StandardAttention):
    def forward(self, x):
        if not os.path.exists("cured"):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)
"""
BASE = [*TINY, "task.capacity=6", "recipe.steps=20"]


def sweep_of(*only, **options):
    grid = [{"model.dim": [8, 16], "measure.task.size": [4, 6]}]
    experiment = experiment_from("trial", {"description": "", "base": BASE, "grid": grid})
    return Sweep(experiment, only=dict(only), **options)


def test_a_filter_of_null_keeps_the_cells_without_the_setting():
    grid = [{"measure.state_format": [None, "int8"], "task.monoid": ["A5", "flip-flop"]}]
    base = ["task=word", *(word for word in TINY if not word.startswith("task"))]
    sweep = Sweep(experiment_from("trial", {"description": "", "base": base, "grid": grid}),
                  only={"measure.state_format": None, "task.monoid": ["A5"]})  # fmt: skip
    assert [cell.config.task["monoid"] for cell in sweep.cells] == ["A5"]
    assert "task.monoid='A5'" in sweep.cells[0].overrides


def test_measurement_waits_for_the_training_run_it_needs(tiny):
    plain = tiny("task.capacity=6", "recipe.steps=20")
    other = tiny("task.capacity=6", "recipe.steps=20", "measure.task.size=5")
    assert run_name(plain) == run_name(other)
    found = []
    waiting = threading.Thread(target=lambda: found.append(run_cell(other)))
    with Run.of(plain).locked(cell_name(plain)) as mine:
        assert mine
        with Run.of(plain).locked(cell_name(plain)) as again:
            assert not again
        waiting.start()
        waiting.join(1.5)
        assert waiting.is_alive() and Run.of(plain).progress()["cell"] == cell_name(plain)
    waiting.join(60)
    assert found[0]["row"]["status"] == "done" and found[0]["row"]["size"] == 5


def test_checking_whether_a_cell_runs_does_not_look_like_running_it(tiny):
    run = Run.of(tiny())
    assert not run.is_running()
    with run.locked("a cell"):
        assert run.is_running()
    with ThreadPoolExecutor(4) as pool:
        seen = list(pool.map(lambda _: run.is_running(), range(1200)))
    assert not any(seen)


class InThisProcess:
    """A launcher that runs cells one after another in this process and records its rounds.
    `fails`: whether each next cell fails."""

    def __init__(self, *fails):
        self.rounds, self.fails = [], list(fails)

    def launch(self, overrides, number):
        self.rounds.append(overrides)
        return [self.job(words) for words in overrides]

    def job(self, words):
        cell = cell_of(words)
        if self.fails and self.fails.pop(0):
            row = {"max_len": 9, "status": "failed", "reason": "diverged"}
            cell.run.write_record(cell.config, row)
            return JobReturn(overrides=words, status=JobStatus.FAILED)
        row = run_and_report(cell.config)
        return JobReturn(overrides=words, status=JobStatus.COMPLETED, _return_value=row)


def test_cells_of_one_training_run_go_in_turn_and_failed_ones_on_request(tiny):
    sweep = sweep_of()
    launcher = InThisProcess(True)
    with display.sweep_progress(sweep, sweep.open_cells()):
        launch_cells(launcher, sweep.open_cells)
    assert [len(cells) for cells in launcher.rounds] == [2, 1]  # not the other cell of what failed
    assert sorted(p.status for p in sweep.plan()) == ["done", "done", "failed", "failed"]
    table = sweep.enter_records()
    assert table["status"].value_counts().to_dict() == {"done": 2, "failed": 1}
    assert sweep.open_cells() == []
    again = sweep_of(retry_failed=True, frontier=True)
    failed, same_run = again.open_cells()
    with failed.run.locked(failed.name):
        statuses = [p.status for p in again.plan() if p.cell in (failed, same_run)]
        assert statuses == ["running", "waiting"]
        assert again.open_cells() == []
        assert [p.cell for p in again.wanted(again.plan())] == [failed, same_run]
    launch_cells(InThisProcess(), again.open_cells)
    assert set(again.enter_records()["status"]) == {"done"}
    assert {p.status for p in again.plan()} == {"done"}


def test_launcher_error_is_one_line_and_other_errors_are_raised(tiny, capsys):
    sweep, launcher = sweep_of(), Mock()
    launcher.launch.side_effect = UncompletedJobError("Job 7 (task: 0) has no output.\nlog:\n...")
    assert launch_cells(launcher, sweep.open_cells) == []
    assert "error: Job 7 (task: 0) has no output. log:; queued jobs" in capsys.readouterr().err
    launcher.launch.side_effect = KeyError("a mistake in the code")
    with pytest.raises(KeyError):
        launch_cells(launcher, sweep.open_cells)


def test_user_errors_of_jobs_are_returned(tiny):
    error, launcher = UserError("the mixer looks ahead"), Mock()
    failed = JobReturn(status=JobStatus.FAILED, _return_value=error)
    launcher.launch.side_effect = lambda overrides, number: [failed for _ in overrides]
    assert launch_cells(launcher, sweep_of().open_cells) == [error, error]


def test_progress_display_reports_an_error_and_continues(tiny, monkeypatch, capsys):
    monkeypatch.setattr(display, "POLL_SECONDS", 0.05)
    sweep = sweep_of(("dim", 8), ("size", 4))
    [one] = sweep.open_cells()
    enter, failures = Sweep.enter_records, [OSError("no room for the table")] * 3

    def enter_after_failures(*arguments):
        if failures:
            raise failures.pop()
        return enter(*arguments)

    monkeypatch.setattr(Sweep, "enter_records", enter_after_failures)
    with display.sweep_progress(sweep, [one], 1):
        run_cell(one.config)
        wait_until(lambda: not failures, 20)
    shown = capsys.readouterr().out
    assert shown.count("warning: progress: OSError: no room for the table") == 1
    assert "[1/1]" in shown


def test_time_estimate_uses_the_speed_of_the_most_similar_run(tiny):
    sweep = sweep_of(("size", 4))
    near, far = sweep.cells
    folder = sweep.folder.parent / "another"
    folder.mkdir(parents=True)
    device = device_name(torch.device("cpu"))
    known = {"status": "done", "device": device, "max_len": 11, "flops_training": 6e9}
    pd.DataFrame([{**known, "run": "a", "model": "standard", "dim": 512, "train_seconds": 1,
                   "steps": 100}]).to_csv(folder / "results.csv", index=False)  # fmt: skip
    assert display.Estimate(sweep).seconds(near) == pytest.approx(training_flops(near) / 2e10)
    runs = [("a", "standard", 8, 2, 100), ("b", "standard", 64, 6, 100),
            ("c", "linear", 8, 1, 100), ("d", "standard", 8, 9, 9)]  # fmt: skip
    names = ("run", "model", "dim", "train_seconds", "steps")
    rows = [dict(zip(names, run, strict=True)) for run in runs]
    pd.DataFrame([{**known, **row} for row in rows]).to_csv(folder / "results.csv", index=False)
    estimate = display.Estimate(sweep)
    for cell in (near, far):
        assert estimate.seconds(cell) == pytest.approx(training_flops(cell) / 3e9)
    write_json(near.run.folder / "progress.json", {"cell": near.name, "step": 5, "steps": 20})
    left = display.seconds_left([near, far], estimate)
    assert left == pytest.approx(0.75 * estimate.seconds(near) + estimate.seconds(far))
    (folder / "train.txt").write_text("a line per sequence\n" * 300)
    words = ("data.train=0", f"data.train_file={folder / 'train.txt'}")
    assert training_flops(cell_of([*TINY, *words])) == training_flops(cell_of(TINY)) > 0
    write_json(near.run.folder / "training.json", {"row": {}})  # only evaluation is left
    assert display.seconds_left([near, far], estimate) == pytest.approx(estimate.seconds(far))


def test_watching_continues_in_the_pause_between_two_cells(tiny, monkeypatch, capsys):
    now = [0.0]

    def sleep(seconds):
        now[0] += seconds

    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
    monkeypatch.setattr(display, "time", clock)
    monkeypatch.setattr(Run, "is_running", lambda _: now[0] < 5 or 20 <= now[0] < 25)
    monkeypatch.setattr(Run, "progress", lambda run: {"cell": run.name})
    display.show_status(sweep_of(), watch=True)
    assert 25 + display.PATIENCE_SECONDS <= now[0] < 30 + display.PATIENCE_SECONDS
    assert "4 cells: 4 missing" in capsys.readouterr().out


def test_the_same_command_continues_after_a_killed_worker(command, tmp_path, monkeypatch):
    """The mixer is outside the repository and kills its process until the file `cured` exists."""
    monkeypatch.syspath_prepend(tmp_path)
    files = {
        "dying.py": DYING,
        "model/dying.yaml": "defaults: [standard]\nname: dying\nmixer: {_target_: dying.Dying}\n",
        "experiment/trial.yaml": f"description: ''\nbase: [{', '.join(BASE)}]\n"
        "grid: [{model: [dying, standard], model.dim: [8]}]\n",
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    words = ["sweep.py", "--config-dir=.", "experiment=trial", "logger=none", "plot=false"]
    done = command(*words)
    assert done.status == 1 and "killed by signal 9" in done.err
    assert "1 of 2 cells are not done; rerun the command to continue" in done.err
    assert set(pd.read_csv("outputs/trial/results.csv")["model"]) == {"standard"}
    (tmp_path / "cured").touch()
    done = command(*words)
    assert done.status == 0 and "1 of 2 cells to run" in done.out, done.err
    assert set(pd.read_csv("outputs/trial/results.csv")["status"]) == {"done"}


def test_a_failed_evaluation_leaves_others_of_its_training_to_run(tiny):
    sweep = sweep_of(("dim", 8))
    cell = sweep.cells[0]
    write_json(cell.run.folder / "training.json", {"row": {}})
    cell.run.write_record(cell.config, {"max_len": 9, "status": "failed", "reason": "bug"})
    assert [planned.status for planned in sweep.plan()] == ["failed", "missing"]


def test_a_row_that_is_done_stays_done(tiny):
    sweep = sweep_of(("dim", 8), ("size", 4))
    (cell,) = sweep.cells
    done = {"max_len": 9, "status": "done", "answer_accuracy": 0.5}
    cell.run.write_record(cell.config, done)
    sweep.enter_records()
    cell.run.write_record(cell.config, {**done, "status": "failed", "reason": "forced"})
    assert [planned.status for planned in sweep.plan()] == ["done"]
