"""train.py, sweep.py and evaluate.py as a person types them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

import cotcost
from common import UserError, run_command
from experiments.runs import Run

ROOT = Path(__file__).resolve().parents[2]
EXPERIMENT = """
description: tiny
base: [task=lis, task.number_range=20, model.num_layers=1, recipe.steps=40,
       recipe.validate_every=20, recipe.warmup_steps=10, data.train=400, data.validation=50,
       data.test=60]
grid:
  - task.size: [3, 4]
    model: [standard, linear]
    model.dim: [8, 16]
    seed: [0]
figures: [heatmap, costs, tables]
budget: tiny
"""
MIXER = """
import os, signal
from models.standard import StandardAttention

class Dying(StandardAttention):
    def forward(self, x, packing=None):
        os.kill(os.getpid(), signal.SIGKILL)
"""

SWEEPER = """
import json
from pathlib import Path
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper

class BestOfTwo(Sweeper):
    def setup(self, **context):
        self.launcher = Plugins.instance().instantiate_launcher(**context)

    def sweep(self, arguments):
        tried = []
        for word in ("model.dim=8", "model.dim=16"):
            [job] = self.launcher.launch([[*arguments, word]], len(tried))
            tried.append((job.return_value, word))
        Path("best.json").write_text(json.dumps(max(tried)))
"""


def run(program, *words, cwd, **environment):
    return subprocess.run(
        [sys.executable, program if program == "-c" else str(ROOT / program), *words],
        cwd=cwd, capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment},
    )  # fmt: skip


def one_line_of(done, status=2):
    """Return the error that a command ends with: one line, the status, no traceback."""
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, done.stderr
    return lines[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder outside the repository with an experiment of its own, run once."""
    folder = tmp_path_factory.mktemp("outside")
    for group in ("experiment", "model"):
        (folder / "conf" / group).mkdir(parents=True)
    (folder / "conf" / "experiment" / "tiny.yaml").write_text(EXPERIMENT)
    return folder


def sweep(folder, *words, **environment):
    words = ("--config-dir=conf", "experiment=tiny", "logger=none", *words)
    return run("sweep.py", *words, cwd=folder, **environment)


@pytest.fixture(scope="module")
def swept(folder):
    done = sweep(folder)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def trained(swept, folder):
    """The run of a finished cell."""
    table = pd.read_csv(folder / "outputs" / "tiny" / "results.csv")
    return folder / "runs" / table.query("size == 4 and dim == 16")["run"].iloc[0]


def test_a_sweep_shows_progress_and_leaves_table_figures_and_readme(swept, folder):
    assert "tiny: 8 of 8 cells to run" in swept.stdout and "[8/8]" in swept.stdout
    results = folder / "outputs" / "tiny"
    assert len(pd.read_csv(results / "results.csv")) == 8
    assert (results / "figures" / "heatmap.png").stat().st_size > 1000
    assert "heatmap.png" in (results / "README.md").read_text()
    assert {path.name for path in results.iterdir()} >= {"config.yaml", "cells.jsonl"}


def test_a_finished_sweep_runs_nothing_again(swept, folder):
    done = sweep(folder, "plot=false")
    assert done.returncode == 0 and "tiny: 0 of 8 cells to run" in done.stdout


def test_plan_and_status_run_nothing(swept, folder):
    plan = sweep(folder, "dry_run=true", 'overrides=["seed=7"]', "only.model=linear")
    assert plan.returncode == 0, plan.stderr
    assert "4 cells: 4 missing" in plan.stdout and "TFLOP" in plan.stdout
    status = sweep(folder, "status=true")
    assert status.returncode == 0 and "8 cells: 8 done" in status.stdout


def test_a_killed_worker_fails_alone(swept, folder):
    (folder / "dying.py").write_text(MIXER)
    (folder / "conf" / "model" / "dying.yaml").write_text(
        "defaults: [standard]\nname: dying\nmixer: {_target_: dying.Dying}\n"
    )
    words = ["--config-dir=conf", "model=standard,dying", "task=lis", "task.size=3",
             "task.number_range=20", "data.train=400", "data.test=60", "recipe.steps=5",
             "model.dim=8", "model.num_layers=1", "logger=none",
             "experiment_name=killed"]  # fmt: skip
    done = run("train.py", "-m", *words, cwd=folder, PYTHONPATH=f"{ROOT}:{folder}")
    assert done.returncode == 1 and "killed by signal 9" in done.stderr
    table = pd.read_csv(folder / "outputs" / "killed" / "results.csv")
    assert table["model"].tolist() == ["standard"]


def test_max_hours_stops_cleanly_and_the_same_command_continues(folder):
    late = sweep(folder, "max_hours=1e-9", 'overrides=["seed=5"]', "only.size=3", "plot=false")
    assert late.returncode == 1 and "4 of 4 cells are not done" in late.stderr
    done = sweep(folder, 'overrides=["seed=5"]', "only.size=3", "plot=false")
    assert done.returncode == 0, done.stderr


def test_a_killed_sweep_continues(folder):
    words = ["--config-dir=conf", "experiment=tiny", "logger=none", 'overrides=["seed=6"]',
             "plot=false"]  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "sweep.py"), *words], cwd=folder, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    for line in process.stdout:
        if line.startswith("[2/8]"):
            process.send_signal(signal.SIGKILL)
            break
    process.wait()
    deadline = time.monotonic() + 60  # its workers stop with it
    runs = [Run(folder / "runs", path.name) for path in (folder / "runs").glob("[0-9a-f]*")]
    while time.monotonic() < deadline and any(run.is_running() for run in runs):
        time.sleep(0.2)
    done = sweep(folder, 'overrides=["seed=6"]', "plot=false")
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(folder / "outputs" / "tiny" / "results.csv")
    assert (table.query("seed == 6")["status"] == "done").sum() == 8


def test_frontier_climbs_and_stops_one_step_above(folder):
    words = ["strategy=frontier", 'overrides=["seed=8"]', "only.size=3", "only.model=standard"]
    done = sweep(folder, *words, "plot=false")
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(folder / "outputs" / "tiny" / "results.csv")
    assert table.query("seed == 8")["dim"].tolist() == [8, 16]


def test_objective_is_what_a_sweeper_gets(trained, folder, monkeypatch):
    from omegaconf import OmegaConf

    import train
    from experiments.config import compose_plain

    monkeypatch.chdir(folder)
    row = pd.read_csv(folder / "outputs" / "tiny" / "results.csv").iloc[0]
    words = [f"cell=tiny/{row['cell']}", "objective=answer_accuracy", "logger=none"]
    found = train.main.__wrapped__(OmegaConf.create(compose_plain("train", words)))
    assert found == row["answer_accuracy"]


def test_a_sweeper_that_optimises_sees_the_objective(folder):
    (folder / "hydra_plugins").mkdir()
    (folder / "hydra_plugins" / "best_of_two.py").write_text(SWEEPER)
    (folder / "conf" / "hydra" / "sweeper").mkdir(parents=True)
    (folder / "conf" / "hydra" / "sweeper" / "best_of_two.yaml").write_text(
        "_target_: hydra_plugins.best_of_two.BestOfTwo\n"
    )
    words = ["--config-dir=conf", "hydra/sweeper=best_of_two", "objective=answer_accuracy",
             "task=lis", "task.size=3", "task.number_range=20", "data.train=400", "data.test=60",
             "recipe.steps=40", "model.num_layers=1", "logger=none",
             "experiment_name=optimised"]  # fmt: skip
    done = run("train.py", "-m", *words, cwd=folder, PYTHONPATH=f"{ROOT}:{folder}")
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(folder / "outputs" / "optimised" / "results.csv")
    best = table.loc[table["answer_accuracy"].idxmax()]
    told = json.loads((folder / "best.json").read_text())
    assert told == [best["answer_accuracy"], f"model.dim={best['dim']}"] and len(table) == 2


def test_evaluate_ends_with_one_json_object_and_shows_chains(trained, folder):
    done = run("evaluate.py", f"run={trained}", "show=2", "out=written.jsonl", cwd=folder)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    keys = {"answer_accuracy", "answer_accuracy_low", "answer_accuracy_high"}
    assert keys | {"chain_exact_match", "n_test", "seconds"} <= told.keys()
    assert done.stdout.count("right  ") == 2
    record = json.loads((trained / "record.json").read_text())["row"]
    assert told["answer_accuracy"] == record["answer_accuracy"] and told["n_test"] == 60
    lines = [json.loads(line) for line in (folder / "written.jsonl").read_text().splitlines()]
    right = sum(line["first_mistake"] is None for line in lines)
    assert len(lines) == 60 and right == pytest.approx(60 * told["chain_exact_match"])


def test_evaluate_reads_sequences_from_a_file(trained, folder):
    (folder / "mine.txt").write_text(
        "5 6 7 8 <sep> 1 2 3 4 <sep> 4\n8 7 6 5 <sep> 1 1 1 1 <sep> 1\n"
    )
    done = run("evaluate.py", f"run={trained}", "data.file=mine.txt", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["n_test"] == 2


def test_a_trained_model_in_three_lines(trained):
    loaded = cotcost.load(trained)
    written = loaded.generate("5 8 6 7 <sep>")
    assert written.right == ["1", "2", "2", "3", "<sep>", "3"]
    assert (written.tokens == written.right) == (written.first_mistake is None)
    assert loaded.task.name == "lis" and loaded.model.dim == 16
    for prompt, reason in [("5 8", "end"), ("5 x 6 <sep>", "'x'")]:
        with pytest.raises(UserError, match=reason):
            loaded.generate(prompt)
    with pytest.raises(UserError, match="no such run"):
        cotcost.load(trained.parent / "nowhere")


def test_an_untrained_model_from_the_words_of_a_command():
    model = cotcost.build("model=sparse", "model.mixer.block_size=4", "model.dim=16", "task=lis")
    assert model.dim == 16 and model.blocks[0].mixer.block_size == 4
    with pytest.raises(UserError, match="heads"):
        cotcost.build("model.num_heads=3")


def test_a_published_cell_runs_as_it_was(monkeypatch, tmp_path):
    import train
    from experiments.config import cell_from, compose_plain
    from experiments.names import cell_name, run_name

    monkeypatch.chdir(tmp_path)
    table = pd.read_csv(ROOT / "results" / "quick" / "results.csv")
    for row in table.iloc[[0, -1]].to_dict("records"):
        given = compose_plain("train", [f"cell=quick/{row['cell']}", "model=linear", "seed=9"])
        config = cell_from(given | train.published_settings(given))
        assert (cell_name(config), run_name(config)) == (row["cell"], row["run"])


def test_help_does_not_wait_for_torch(tmp_path):
    program = "import sys, train, sweep, evaluate; sys.exit('torch' in sys.modules)"
    assert run("-c", program, cwd=tmp_path).returncode == 0


def test_workers_run_the_code_of_the_program_that_starts_them(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "theirs")
    run_command(lambda: None)
    assert os.environ["PYTHONPATH"].split(os.pathsep) == [str(ROOT), "theirs"]


def test_what_people_mistype_ends_with_one_line(tmp_path):
    """See test_bad_calls.py for the many ways."""
    assert "standrad" in one_line_of(run("train.py", "model=standrad", cwd=tmp_path))


def test_a_failed_run_ends_with_status_1(tmp_path):
    words = ["task=lis", "task.size=3", "data=quick", "recipe.learning_rate=1e30",
             "recipe.gradient_clip=null", "model.num_layers=1", "logger=none"]  # fmt: skip
    assert "diverged" in one_line_of(run("train.py", *words, cwd=tmp_path), status=1)
