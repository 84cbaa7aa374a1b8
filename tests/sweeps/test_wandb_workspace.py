"""The workspace, the report and the sweep file for W&B: what they would send and run."""

import json
from pathlib import Path

import pytest
import wandb
from fake_wandb import FakeWandb
from wandb.sdk.launch.sweeps import utils as sweeps

from common import UserError
from config.compose import compose_plain
from config.grid import cells, load_experiment
from config.identity import cell_name
from config.schema import validate_cell
from records.table import COLUMNS
from sweeps import wandb_workspace
from training.events import CURVE_COLUMNS

ROOT = Path(__file__).parents[2]
SWEEP = ROOT / "conf" / "wandb" / "sweep.yaml"
PICTURES = [path.stem for path in ROOT.glob("results/quick/figures/*.png")]


@pytest.fixture
def server(tmp_path, monkeypatch):
    wandb.teardown()
    fake = FakeWandb()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WANDB_BASE_URL", fake.url)
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    yield fake
    fake.close()
    wandb.teardown()


def test_workspace_and_report_show_what_the_tracker_writes(server, capsys):
    pytest.importorskip("wandb_workspaces", reason="the extra `workspaces`")
    wandb_workspace.main(["experiment=quick", "entity=somebody"])
    workspace, report = (json.loads(view["spec"]) for view in server.views)
    sent = json.dumps([workspace, report])
    for name in wandb_workspace.CURVES:
        assert name in CURVE_COLUMNS
        assert sent.count(f'"chartTitle": "{name}"') == 2
    for name in ("flops_total", "answer_accuracy"):
        assert name in COLUMNS
        assert sent.count(f'"summary:{name}"') >= 2
    for name in ("model.name", "model.dim", "task.size"):
        assert f'"config:{name.replace(".", ".value.")}"' in sent
    for name in (*PICTURES, "results"):
        assert f'"{name}"' in sent
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize("words", [[], ["experiment=quick"], ["experiment=quick", "key=1"]])
def test_a_bad_call_says_what_is_missing(words):
    with pytest.raises(UserError, match="usage: "):
        wandb_workspace.main(words)


def test_the_pictures_are_those_drawn_and_before_that_those_named(tmp_path, capsys):
    experiment = load_experiment("overnight")
    keys = wandb_workspace.figure_keys(experiment, tmp_path)
    assert keys == [*experiment.figures, "results"]
    assert "no figures yet" in capsys.readouterr().err
    folder = tmp_path / "overnight/figures"
    folder.mkdir(parents=True)
    for name in ("savings.png", "accuracy_vs_flops_ed.png", "accuracy_vs_flops_ed.pdf"):
        (folder / name).touch()
    keys = wandb_workspace.figure_keys(experiment, tmp_path)
    assert keys == ["accuracy_vs_flops_ed", "savings", "results"]
    assert capsys.readouterr().err == ""


def sweep_commands():
    """Every command that an agent of the sweep would run, by W&B's own functions."""
    sweep = sweeps.load_sweep_config(str(SWEEP))
    points = [{}]
    for key, choice in sweep["parameters"].items():
        values = choice.get("values", [choice.get("value")])
        points = [{**point, key: {"value": value}} for point in points for value in values]
    for point in points:
        arguments = sweeps.create_sweep_command_args({"args": point})
        words = []
        for part in sweeps.create_sweep_command(sweep["command"]):
            macro = part.strip("${}")
            words += arguments.get(macro, [{"program": sweep["program"]}.get(macro, macro)])
        yield words


def test_the_sweep_file_runs_the_cells_of_the_quick_experiment():
    commands = list(sweep_commands())
    for command in commands:
        assert command[:3] == ["env", "interpreter", "train.py"]
    composed = {cell_name(validate_cell(compose_plain("train", c[3:]))) for c in commands[:2]}
    quick = {cell.name for cell in cells(load_experiment("quick"))}
    assert len(commands) == len(quick)
    assert composed <= quick
    assert all("logger=wandb_online" in command for command in commands)
