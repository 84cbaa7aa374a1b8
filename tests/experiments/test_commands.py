"""train.py, sweep.py and evaluate.py as typed on the command line."""

import errno
import json
import math
import os
import re
import shutil
import signal
from unittest.mock import Mock

import pandas as pd
import pytest
import torch
from processes import ROOT, output, start, wait_until
from tiny_cell import TINY

import cotcost
from common import RunError, UserError, run_command, write_text
from experiments.row import status_of
from experiments.run_folder import Run
from training.trainer import Trainer

EXPERIMENT = """
description: tiny
base: [task=lis, task.size=4, task.number_range=20, model.num_layers=1, recipe.steps=40,
       recipe.validate_every=20, recipe.warmup_steps=10, data.train=400, data.validation=50,
       data.test=60]
grid:
  - model: [standard, linear]
    model.dim: [8, 16]
    seed: [0]
figures: [heatmap, costs, tables]
"""
SWEEP = ["--config-dir=conf", "experiment=tiny", "logger=none"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder outside the repository with its own experiment."""
    folder = tmp_path_factory.mktemp("outside")
    (folder / "conf" / "experiment").mkdir(parents=True)
    (folder / "conf" / "experiment" / "tiny.yaml").write_text(EXPERIMENT)
    return folder


@pytest.fixture(scope="module")
def killed(folder):
    """Output of a sweep that was killed after its first cell."""
    process = start(str(ROOT / "sweep.py"), *SWEEP, "hydra.launcher.jobs=1", cwd=folder)
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith("[1/4]"):
            process.send_signal(signal.SIGKILL)
    process.wait()
    runs = [Run(folder / "runs", path.name) for path in (folder / "runs").glob("[0-9a-f]*")]
    assert wait_until(lambda: not any(run.is_running() for run in runs))  # workers stop with it
    return lines


@pytest.fixture
def outside(command, folder, monkeypatch):
    """Return a function that runs a command in the experiment's folder."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    return command


@pytest.fixture
def swept(killed, outside, folder):
    """Finish the killed sweep; return the `outside` function and the results table."""
    if not (folder / "outputs" / "tiny" / "README.md").exists():
        done = outside("sweep.py", *SWEEP)
        assert done.status == 0, done.err
        (folder / "printed").write_text(done.out)
    return outside, pd.read_csv(folder / "outputs" / "tiny" / "results.csv")


@pytest.fixture
def trained(swept, folder):
    """The run folder of a finished cell."""
    return folder / "runs" / swept[1].query("dim == 16")["run"].iloc[0]


def test_a_killed_sweep_continues(killed, swept, folder):
    assert killed[0] == "tiny: 4 of 4 cells to run\n" and any("[1/4]" in line for line in killed)
    printed = (folder / "printed").read_text()
    assert "tiny: 4 of 4" not in printed and " of 4 cells to run" in printed
    assert swept[1]["status"].tolist() == ["done"] * 4


def test_a_sweep_leaves_table_figures_and_readme(swept, folder):
    results = folder / "outputs" / "tiny"
    assert (results / "figures" / "heatmap.png").stat().st_size > 1000
    printed = (folder / "printed").read_text().splitlines()
    assert {"outputs/tiny/figures/heatmap.png", "outputs/tiny/README.md"} <= set(printed)
    page = (results / "README.md").read_text()
    assert "heatmap.png" in page and "`python sweep.py --config-dir=conf experiment=tiny" in page
    assert {path.name for path in results.iterdir()} >= {"config.yaml", "cells.jsonl"}


def test_finished_sweep_dry_run_and_status_run_nothing(swept):
    run, _ = swept
    done = run("sweep.py", *SWEEP, "plot=false")
    assert done.status == 0 and "tiny: 0 of 4 cells to run" in done.out
    plan = run("sweep.py", *SWEEP, "dry_run=true", 'overrides=["seed=7"]', "only.model=linear")
    assert plan.status == 0, plan.err
    assert "2 cells: 2 missing" in plan.out and "TFLOP" in plan.out
    names = swept[1]["cell"].tolist()
    some = run("sweep.py", *SWEEP, "dry_run=true", f"only.cell=[{names[0]}, {names[1]}]")
    assert "2 cells: 2 done" in some.out
    status = run("sweep.py", *SWEEP, "status=true")
    assert status.status == 0 and "4 cells: 4 done" in status.out
    paper = ["experiment=table2", 'overrides=["recipe=paper"]', "only.recipe=paper"]
    assert "60 cells: 60 missing" in run("sweep.py", *paper, "dry_run=true").out


def test_max_hours_stops_cleanly_and_frontier_ends_one_dim_above(outside, folder):
    """The answer is always 1, so every D passes."""
    easy = EXPERIMENT.replace("size=4", "size=1").replace("[8, 16]", "[8, 16, 32]")
    easy = easy.replace("range=20", "range=1000").replace("steps=40", "steps=200")
    easy += "strategy: frontier\n"
    (folder / "conf" / "experiment" / "easy.yaml").write_text(easy)
    words = ["--config-dir=conf", "experiment=easy", "logger=none", "only.model=standard",
             "plot=false"]  # fmt: skip
    late = outside("sweep.py", *words, "max_hours=1e-9")
    assert late.status == 1 and "1 of 3 cells are not done; rerun" in late.err
    assert "3 missing; 1 to run" in outside("sweep.py", *words, "dry_run=true").out
    done = outside("sweep.py", *words, "hydra/launcher=basic")
    assert done.status == 0, done.err
    path = folder / "outputs/easy/results.csv"
    assert pd.read_csv(path)["dim"].tolist() == [8, 16]
    assert outside("sweep.py", *words, "strategy=grid", "only.dim=32").status == 0
    table = pd.read_csv(path, dtype=str).set_index("dim", drop=False)
    table.loc["32", "status"] = "failed"
    table.to_csv(path, index=False)
    shutil.rmtree(folder / "runs" / table.loc["32", "run"])
    above = outside("sweep.py", *words)  # a failed cell that the frontier does not need
    assert (above.status, above.err) == (0, "")


SWEEPER = """
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper

class TwoWidths(Sweeper):
    def __init__(self, **settings):
        pass

    def setup(self, **arguments):
        self.launcher = Plugins.instance().instantiate_launcher(**arguments)

    def sweep(self, arguments):
        jobs = [[*arguments, f"model.dim={dim}"] for dim in (8, 16)]
        done = self.launcher.launch(jobs, initial_job_idx=0)
        print([job.return_value for job in done])
"""


def test_a_sweeper_that_optimises_gets_the_accuracy(tmp_path):
    (tmp_path / "hydra_plugins").mkdir()
    (tmp_path / "hydra_plugins" / "two_widths.py").write_text(SWEEPER)
    words = ["-m", "hydra.sweeper._target_=hydra_plugins.two_widths.TwoWidths", *TINY]
    printed = output(str(ROOT / "train.py"), *words, cwd=tmp_path,
                     PYTHONPATH=f"{ROOT}{os.pathsep}{tmp_path}")  # fmt: skip
    records = [json.loads(path.read_text()) for path in (tmp_path / "runs").glob("*/record.json")]
    expected = {record["row"]["dim"]: record["row"]["answer_accuracy"] for record in records}
    assert json.loads(printed.splitlines()[-1]) == [expected[8], expected[16]]


def test_evaluate_ends_with_one_json_object_and_shows_chains(swept, trained, folder):
    done = swept[0]("evaluate.py", f"run={trained}", "show=2", "out=written.jsonl")
    assert done.status == 0, done.err
    told = json.loads(done.out.splitlines()[-1])
    keys = {"answer_accuracy", "answer_accuracy_low", "answer_accuracy_high"}
    assert keys | {"chain_exact_match", "n_test", "seconds"} <= told.keys()
    assert done.out.count("right  ") == 2
    record = json.loads((trained / "record.json").read_text())["row"]
    assert told["answer_accuracy"] == record["answer_accuracy"] and told["n_test"] == 60
    lines = [json.loads(line) for line in (folder / "written.jsonl").read_text().splitlines()]
    right = sum(line["first_mistake"] is None for line in lines)
    assert len(lines) == 60 and right == pytest.approx(60 * told["chain_exact_match"])
    one = cotcost.Written(["5", "="], ["1", "2"], ["1", "3"], None, 1)
    assert str(one) == "prompt 5 =\nmodel  1 [2]\nright  1 3"


def test_evaluate_uses_the_count_the_formats_the_size_and_the_file_asked_for(
    swept, trained, folder
):
    def written(*words, n_test=30):
        done = swept[0]("evaluate.py", f"run={trained}", "out=all.jsonl", *words)
        assert done.status == 0, done.err
        assert json.loads(done.out.splitlines()[-1])["n_test"] == n_test
        lines = [json.loads(line) for line in (folder / "all.jsonl").read_text().splitlines()]
        return [line["prompt"] for line in lines], [line["tokens"] for line in lines]

    prompts, plain = written("count=30")
    for word in ("state_format=int2", "weight_format=int2"):
        same, coarse = written("count=30", word)
        assert same == prompts and coarse != plain
    shorter = written("task.size=3", "count=30")[0]
    assert {len(prompt) for prompt in shorter} == {4}
    assert min(int(number) for *numbers, _ in shorter for number in numbers) > 4  # as in training
    own = ["5 6 7 8 <sep>", "8 7 6 5 <sep>"]
    (folder / "mine.txt").write_text(f"{own[0]} 1 2 3 4 <sep> 4\n{own[1]} 1 1 1 1 <sep> 1\n")
    assert written("data.file=mine.txt", n_test=2)[0] == [line.split() for line in own]


def test_load_a_run_and_generate(trained):
    loaded = cotcost.load(trained)
    written = loaded.generate("5 8 6 7 <sep>")
    assert written.right == ["1", "2", "2", "3", "<sep>", "3"]
    assert (written.tokens == written.right) == (written.first_mistake is None)
    assert loaded.task.name == "lis" and loaded.model.dim == 16
    for prompt, reason in [("5 8", "no '<sep>'"), ("5 <sep> 8 <sep>", "exactly one"),
                           ("5 x 6 <sep>", "'x'"), ("<sep>", "numbers")]:  # fmt: skip
        with pytest.raises(UserError, match=reason):
            loaded.generate(prompt)
    with pytest.raises(UserError, match="no such run"):
        cotcost.load(trained.parent / "nowhere")


def test_build_an_untrained_model_from_overrides(tmp_path):
    model = cotcost.build("model=sparse", "model.mixer.block_size=4", "model.dim=16", "task=lis")
    assert model.dim == 16 and model.blocks[0].mixer.block_size == 4
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text("defaults: [linear]\nname: mine\ndim: 20\n")
    quote = tmp_path / "o'b"
    quote.symlink_to(tmp_path)
    assert cotcost.build("model=mine", config_dir=quote).dim == 20
    (tmp_path / "model" / "both.yaml").write_text(
        "defaults: [standard]\nname: both\nmixer: null\nmixers: [mine, standard]\n"
    )
    assert len(cotcost.build("model=both", config_dir=tmp_path).blocks) == 3


def test_help_does_not_import_torch():
    output("-c", "import sys, train, sweep, evaluate; sys.exit('torch' in sys.modules)")


def test_workers_use_this_code_and_no_variables_of_a_slurm_allocation(monkeypatch):
    """An inherited SLURM_MEM_PER_CPU and a job's own SLURM_MEM_PER_NODE make its srun fail."""
    for name in ("SLURM_MEM_PER_CPU", "SLURM_CPU_BIND", "SLURM_CONF", "SBATCH_ACCOUNT"):
        monkeypatch.setenv(name, "theirs")
    monkeypatch.setenv("PYTHONPATH", "theirs")
    run_command(lambda: None)
    assert os.environ["PYTHONPATH"].split(os.pathsep) == [str(ROOT), "theirs"]
    left = {name for name in os.environ if name.startswith(("SLURM_", "SBATCH_"))}
    assert left == {"SLURM_CONF", "SBATCH_ACCOUNT"}


def test_failed_run_is_recorded_with_a_one_line_error_and_status_1(command):
    done = command("train.py", *TINY, "recipe.learning_rate=1e30", "recipe.gradient_clip=null")
    assert done.status == 1 and "Traceback" not in done.err
    assert any(re.match("error: .*diverged.*step", line) for line in done.err.splitlines())
    (row,) = pd.read_csv("outputs/manual/results.csv").to_dict("records")
    assert row["status"] == "failed" and "diverged" in row["reason"]
    assert row["precision"] == "float32"
    assert math.isnan(row["answer_accuracy"])


def test_out_of_memory_is_recorded_with_its_remedy(command, monkeypatch):
    monkeypatch.setattr(Trainer, "step", Mock(side_effect=torch.OutOfMemoryError("40 MiB wanted")))
    with pytest.raises(torch.OutOfMemoryError):
        command("train.py", *TINY)
    (row,) = pd.read_csv("outputs/manual/results.csv").to_dict("records")
    assert row["status"] == "failed" and "micro_batch_size" in row["reason"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_keeps_the_old_file_and_the_cell_is_unfinished(tmp_path, monkeypatch, number):
    path = tmp_path / "record.json"
    path.write_text("old")
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(number, "full")))
    with pytest.raises(RunError, match="the disk is full") as caught:
        write_text(path, "new")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    assert status_of(caught.value) == "unfinished"
