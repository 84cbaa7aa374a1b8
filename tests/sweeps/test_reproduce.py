"""Every reproduce command in a report runs, and gives the row that it stands beside."""

import json
import re
import shlex
from pathlib import Path

import pandas as pd
import pytest
from commands import TINY

from config.compose import compose_plain
from config.files import cell_from_file
from config.grid import load_experiment, planned
from config.identity import cell_name
from plots import report
from plots.cells import gather
from plots.redraw import redraw
from records.reading import read

ROOT = Path(__file__).resolve().parents[2]
EXPERIMENT = """
description: three cells
base: [{base}]
grid:
  - model: [standard, linear, mine]
figures: [heatmap]
"""


def config_of(command):
    """The configuration that a command names, where it is of the kind that reruns one cell."""
    program, script, config, force = shlex.split(command)
    assert (program, script, force) == ("python", "train.py", "force=true")
    return config.removeprefix("config=")


def test_the_commands_of_a_report_give_its_rows_again(command):
    (command.folder / "conf/experiment").mkdir(parents=True)
    text = EXPERIMENT.format(base=", ".join(TINY))
    (command.folder / "conf/experiment/small.yaml").write_text(text)
    (command.folder / "conf/model").mkdir()
    (command.folder / "conf/model/mine.yaml").write_text("defaults: [linear]\nname: mine\n")
    for model in ("standard", "linear"):
        assert command("train.py", *TINY, f"model={model}", "experiment_name=small").status == 0
    redraw("small", "results", config_dir="conf")
    page = (command.folder / "results/small/report.html").read_text()
    shown = json.loads(re.search(r'<script id="data"[^>]*>(.*?)</script>', page, re.S)[1])["cells"]
    runs = [run for cell in shown for run in cell["runs"]]
    [missing] = [gap for cell in shown for gap in cell["missing"]]
    assert [run["model"] for run in runs] == ["linear", "standard"]
    for run in runs:
        config_of(run["command"])
        assert command("train.py", *shlex.split(run["command"])[2:], "logger=none").status == 0
    again = pd.read_csv(command.folder / "results/manual/results.csv")
    for run in runs:
        [row] = again[again["cell"] == run["cell"]].to_dict("records")
        for name in ("answer_accuracy", "chain_exact_match", "steps", "flops_total"):
            assert row[name] == run[name], name
        assert row["finished_at"] > run["finished_at"]
    assert "python sweep.py --config-dir=conf experiment=small" in page
    assert "python -m plots --config-dir=conf experiment=small" in page
    assert command("train.py", *shlex.split(missing["command"])[2:]).status == 0
    filled = pd.read_csv(command.folder / "results/small/results.csv")
    assert filled["model"].tolist() == ["linear", "mine", "standard"]


@pytest.mark.parametrize("name", ["quick", "longer"])
def test_the_commands_of_the_committed_reports_name_their_cells(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    table = read(Path("results") / name / "results.csv")
    experiment = load_experiment(name)
    dotted = [column for column in map(str, table) if "." in column]
    grid = gather(table, planned(experiment, also=dotted))
    commands = report._commands(grid, experiment, Path("results") / name)
    call = compose_plain("train", [])
    for cell in table["cell"]:
        assert cell_name(cell_from_file(config_of(commands[cell]), dict(call))) == cell


def test_evaluating_weights_whose_training_has_not_ended_is_told_twice(command):
    words = [word for word in TINY if not word.startswith("recipe.steps")]
    assert command("train.py", *words, "recipe.steps=30000", "time_limit_seconds=1").status == 1
    [folder] = (command.folder / "runs").iterdir()
    outcome = command("evaluate.py", f"run={folder}")
    assert outcome.status == 0
    assert outcome.line == "warning: the training of these weights has not ended"
    assert json.loads(outcome.out.splitlines()[-1])["status"] == "unfinished"
