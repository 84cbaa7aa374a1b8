"""Sweeps end to end on cells of a second: finish, skip, fail, survive."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from commands import TINY

from config.compose import CONF_DIR
from config.grid import cells, load_experiment
from sweeps.cost import CostEstimate, this_device

ROOT = Path(__file__).resolve().parents[2]
MEASURED = ["cell", "status", "answer_accuracy", "chain_exact_match", "steps", "params"]
SMALL = [
    "task.size=2", "model.num_layers=1", "model.num_heads=2", "recipe.steps=4",
    "recipe.validate_every=2", "data.train=300", "data.validation=20", "data.test=20",
]  # fmt: skip


def words(*more):
    listed = ",".join(f'"{word}"' for word in [*SMALL, *more])
    return f"overrides=[{listed}]"


def table(folder, name="quick"):
    return pd.read_csv(folder / "results" / name / "results.csv")


def run_sweep(folder, *arguments, program="sweep.py"):
    return subprocess.run(
        [sys.executable, str(ROOT / program), *arguments],
        cwd=folder, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A finished sweep over six cells (three models, two dimensions)."""
    folder = tmp_path_factory.mktemp("swept")
    arguments = ["experiment=quick", "only.dim=[8,16]", "only.seed=0", "logger=none", words()]
    first = run_sweep(folder, *arguments)
    return folder, arguments, first


def test_a_sweep_runs_its_cells_draws_and_sums_up(swept):
    folder, _, first = swept
    assert first.returncode == 0, first.stderr
    rows = table(folder)
    assert len(rows) == 6 and set(rows["status"]) == {"done"}
    assert "answer accuracy" in first.stdout
    assert (folder / "results/quick/figures/heatmap.pdf").exists() or list(
        (folder / "results/quick/figures").glob("heatmap*.pdf")
    )
    for cell in rows["cell"]:
        assert (folder / f"results/quick/configs/{cell}.yaml").exists()
        assert (folder / f"results/quick/curves/{cell}.csv").exists()


def test_a_second_run_skips_what_is_done(swept):
    folder, arguments, _ = swept
    before = {p: p.stat().st_mtime_ns for p in folder.glob("runs/*/record.json")}
    again = run_sweep(folder, *arguments, "plot=false")
    assert again.returncode == 0
    assert "to run" not in again.stdout
    assert {p: p.stat().st_mtime_ns for p in folder.glob("runs/*/record.json")} == before


def test_dry_run_tells_done_from_missing_and_starts_nothing(swept):
    folder, arguments, _ = swept
    wider = [a for a in arguments if not a.startswith("only.dim")] + ["only.dim=[16,64]"]
    plan = run_sweep(folder, *wider, "dry_run=true")
    assert plan.returncode == 0, plan.stderr
    assert "6 cells: 3 done, 3 missing; to run: 3" in plan.stdout
    assert "FLOP/MHL²" in plan.stdout
    assert len(list(folder.glob("runs/*/record.json"))) == 6


def test_a_lost_cell_is_run_again_and_the_table_is_the_same(swept):
    folder, arguments, _ = swept
    before = table(folder)[MEASURED]
    record = sorted(folder.glob("runs/*/record.json"))[0]
    (record.parent / "checkpoint.pt").unlink()
    record.unlink()
    assert run_sweep(folder, *arguments, "plot=false", "remeasure=true").returncode == 0
    pd.testing.assert_frame_equal(table(folder)[MEASURED], before)


def test_rows_of_the_committed_table_count_as_done_unless_remeasured(command, swept):
    """A fresh clone has results.csv and no runs."""
    folder, arguments, _ = swept
    (command.folder / "results/quick").mkdir(parents=True)
    (command.folder / "results/quick/results.csv").write_bytes(
        (folder / "results/quick/results.csv").read_bytes()
    )
    kept = command("sweep.py", *arguments, "dry_run=true")
    assert "6 cells: 6 done; to run: 0" in kept.out
    anew = command("sweep.py", *arguments, "dry_run=true", "remeasure=true")
    assert "6 cells: 6 missing; to run: 6" in anew.out


@pytest.mark.parametrize(
    ("only", "left"),
    [
        (["only.task.monoid=A5", "only.model.position=rope", "only.task.size=16"], 9),
        (["only.task.monoid=[A5,Z60]", "only.model.position=rope", "only.task.size=16"], 18),
        (["only.model=standard", "only.model.position=rope", "only.seed=0"], 36),
    ],
)
def test_any_setting_keeps_the_cells_that_match(command, only, left):
    """Of `tracking`: three formats; rope at 16 letters with three seeds, or at four lengths."""
    found = command("sweep.py", "experiment=tracking", "only.model=standard", *only, "dry_run=true")
    assert f"tracking: {left} cells" in found.out


def test_a_failing_cell_is_recorded_and_the_others_go_on(tmp_path):
    arguments = [
        "experiment=quick", "only.dim=8", "only.seed=0", "logger=none", "plot=false",
        words("recipe.learning_rate=1e30", "recipe.warmup=0.0", "recipe.gradient_clip=null"),
    ]  # fmt: skip
    failed = run_sweep(tmp_path, *arguments)
    assert failed.returncode == 1
    rows = table(tmp_path)
    assert len(rows) == 3 and set(rows["status"]) == {"failed"}
    assert rows["reason"].str.contains("not finite|diverged").all()
    assert rows["answer_accuracy"].isna().all()
    assert "3 failed (retry_failed=true tries these again)" in failed.stderr
    untouched = run_sweep(tmp_path, *arguments)
    assert untouched.returncode == 1 and "to run" not in untouched.stdout
    retried = run_sweep(tmp_path, *arguments, "retry_failed=true")
    assert "3 of 3 cells to run" in retried.stdout


TOLD = {
    signal.SIGKILL: (-9, ""),
    signal.SIGTERM: (143, "terminated"),
    signal.SIGINT: (130, "interrupted"),
}


@pytest.mark.parametrize("number", TOLD, ids=lambda number: number.name)
def test_a_stopped_sweep_continues_to_the_same_table(tmp_path, swept, number):
    """A signal in the middle; the sweep's workers must not live on, nothing half-written."""
    folder, arguments, _ = swept
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "sweep.py"), *arguments, "plot=false"],
        cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        # A shell lets its background jobs, and all that they start, ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("runs/*/record.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    _, told = process.communicate(timeout=120)  # workers that live on would hold the pipe
    status, word = TOLD[number]
    assert process.returncode == status
    assert told.endswith(word and f"error: {word}; the same command continues from here\n")
    assert told.count("error:") == bool(word) and "Traceback" not in told
    finished = {
        path: (json.loads(path.read_text())["status"], path.stat().st_mtime_ns)
        for path in tmp_path.glob("runs/*/record.json")
    }
    assert finished
    time.sleep(3)  # workers notice that the sweep is gone
    again = run_sweep(tmp_path, *arguments, "plot=false")
    assert again.returncode == 0, again.stderr
    for path, (before, stamp) in finished.items():
        assert before != "done" or path.stat().st_mtime_ns == stamp  # done is not done again
    pd.testing.assert_frame_equal(table(tmp_path)[MEASURED], table(folder)[MEASURED])
    assert not list(tmp_path.glob("**/.*.tmp"))


def test_two_sweeps_at_once_share_the_work(tmp_path, swept):
    folder, arguments, _ = swept
    both = [
        subprocess.Popen(
            [sys.executable, str(ROOT / "sweep.py"), *arguments, "plot=false"],
            cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for _ in range(2)
    ]  # fmt: skip
    for process in both:
        process.communicate(timeout=300)
    assert run_sweep(tmp_path, *arguments, "plot=false").returncode == 0
    pd.testing.assert_frame_equal(table(tmp_path)[MEASURED], table(folder)[MEASURED])


def test_multirun_fills_the_same_table(tmp_path, swept):
    folder, _, _ = swept
    done = run_sweep(
        tmp_path, "-m", *SMALL, "recipe=quick", "data=quick", "model=standard,linear,sparse",
        "model.dim=8,16", "task=lis", "task.number_range=40", "logger=none", program="train.py",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows, expected = table(tmp_path, "manual"), table(folder)
    pd.testing.assert_frame_equal(rows[MEASURED], expected[MEASURED])


@pytest.mark.parametrize("name", sorted(p.stem for p in (CONF_DIR / "experiment").glob("*.yaml")))
def test_every_shipped_experiment_runs_for_two_steps(command, name):
    """The smallest and the last cell of each, with two steps and a handful of sequences."""
    chosen = cells(load_experiment(name))
    smallest = min(chosen, key=lambda cell: (cell.config.model.dim, cell.config.task["size"]))
    short = [
        "recipe.steps=2", "recipe.epochs=null", "recipe.batch_size=4", "recipe.validate_every=2",
        "data.train=40", "data.validation=4", "data.test=4", "logger=none",
    ]  # fmt: skip
    keys = {word.split("=")[0] for word in short}
    kept = [word for word in smallest.overrides if word.split("=")[0] not in keys]
    outcome = command("train.py", *kept, *short, f"experiment_name={name}")
    assert outcome.status == 0, outcome.err
    rows = table(command.folder, name)
    assert rows["status"].tolist() == ["done"] and rows["steps"].tolist() == [2]


def test_one_cell_from_the_readme(command):
    outcome = command("train.py", *TINY)
    assert outcome.status == 0
    assert "answer" in outcome.out and "cell" in outcome.out
    again = command("train.py", *TINY)
    assert again.out == f"already done; force=true measures again: {outcome.out}"


def test_a_time_limit_leaves_the_cell_unfinished_and_continues(command):
    words = [w for w in TINY if not w.startswith("recipe.steps")] + ["recipe.steps=3000"]
    outcome = command("train.py", *words, "time_limit_seconds=1")
    assert outcome.status == 1
    begins, ends = outcome.err.splitlines()
    assert begins == "training: at most 3,000 steps"
    assert ends.startswith("error: ") and "continues from its checkpoint" in ends
    (row,) = table(command.folder, "manual").to_dict("records")
    assert row["status"] == "unfinished" and pd.isna(row["answer_accuracy"])


def test_estimates_come_from_measured_rates():
    measured = pd.DataFrame(
        {
            "status": ["done", "done", "failed"],
            "model": ["linear", "linear", "sparse"],
            "dim": [8, 64, 8],
            "train_seconds": [2.0, 1.0, 1.0],
            "flops_training": [4e9, 9e9, 1e9],
        }
    )
    estimate = CostEstimate(measured)
    assert estimate.rate("linear", 8) == 2e9
    assert estimate.rate("linear", 48) == 9e9
    assert estimate.rate("sparse", 8) == 2e9
    nothing = CostEstimate(measured.iloc[2:])
    assert nothing.rate("linear", 8) == 2e10
    assert nothing.source == "20 GFLOP/s assumed, nothing was measured yet"


def test_rates_of_this_machine_go_before_those_of_another():
    def trainings(device, rates, **fields):
        return pd.DataFrame({
            "status": "done", "model": "linear", "dim": 32, "train_seconds": 2.0,
            "flops_training": [2 * rate for rate in rates], "device": device, **fields,
        })  # fmt: skip

    here, elsewhere = trainings(this_device(), [3e9, 5e9, 9e9]), trainings("cpu: other", [7e9])
    estimate = CostEstimate(elsewhere, [here])
    assert estimate.rate("linear", 32) == 5e9
    assert estimate.source == f"rates of 3 trainings measured on this machine ({this_device()})"
    estimate = CostEstimate(elsewhere)
    assert estimate.rate("linear", 32) == 7e9
    assert estimate.source.endswith("measured in this experiment, on another machine")
    assert CostEstimate(here[:0], [trainings("tpu: x", [8e9])]).rate("linear", 32) == 2e10
    lengths = trainings(this_device(), [1e9, 4e9], max_len=[20, 200], weights=["a", "b"])
    estimate = CostEstimate(lengths, [lengths])
    assert [estimate.rate("linear", 32, length) for length in (30, 100, 999)] == [1e9, 4e9, 4e9]
    assert estimate.source.startswith("rates of 2 trainings")
    for other in ("cuda: H200", f"cuda: H200; {this_device()}"):  # only measured, or ended, here
        moved = trainings(this_device(), [8e9], trained_device=other)
        assert CostEstimate(moved, [here]).rate("linear", 32) == 5e9
        assert CostEstimate(moved, []).rate("linear", 32) == 2e10
    tried = trainings(this_device(), [1e6, 5e9], steps=[20, 1500], weights=["a", "b"])
    assert CostEstimate(tried).rate("linear", 32) == 5e9  # a first try of 20 steps tells no rate


def test_a_worker_that_is_killed_is_tried_again_and_others_finish(tmp_path):
    """The first two processes of one cell kill themselves; the third finishes it."""
    (tmp_path / "deadly.py").write_text(
        "import os, pathlib, signal\n"
        "from tasks.arithmetic import Arithmetic\n"
        "class Deadly(Arithmetic):\n"
        "    name = 'deadly'\n"
        "    def training_mixture(self):\n"
        "        if self.size == 2:\n"
        "            marks = pathlib.Path('marks'); marks.mkdir(exist_ok=True)\n"
        "            if len(list(marks.iterdir())) < int(os.environ['DEATHS']):\n"
        "                (marks / str(os.getpid())).touch(); os.kill(os.getpid(), signal.SIGKILL)\n"
        "        return super().training_mixture()\n"
    )
    arguments = [
        sys.executable, str(ROOT / "train.py"), "-m", *SMALL[1:], "task.size=2,3", "model.dim=8",
        "task._target_=deadly.Deadly", "logger=none",
    ]  # fmt: skip
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "DEATHS": "2"}
    survived = subprocess.run(arguments, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert survived.returncode == 0, survived.stderr
    assert sorted(table(tmp_path, "manual")["size"]) == [2, 3]
    for path in (tmp_path / "runs").glob("*/record.json"):
        path.unlink()
    for mark in (tmp_path / "marks").iterdir():
        mark.unlink()
    shutil.rmtree(tmp_path / "data")
    env["DEATHS"] = "9"
    lost = subprocess.run(arguments, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert lost.returncode == 1
    assert "killed by signal 9" in lost.stderr
    assert len(list((tmp_path / "runs").glob("*/record.json"))) == 1
