"""W&B logs, read back with W&B's own tool, and runs in which W&B fails."""

import dataclasses
import json
import subprocess
import sys
import time

import matplotlib.pyplot as plt
import pandas as pd
import pytest
import wandb

from experiments import grid, wandb_log
from experiments.config import LoggerConfig
from experiments.names import cell_name
from experiments.run import run_cell
from training.device import Machine


@pytest.fixture(autouse=True)
def nobodys_account(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    grid._composed.cache_clear()
    yield
    grid._composed.cache_clear()
    wandb.teardown()


def inspect(folder):
    """Return the output of `wandb leet inspect` for the only log in `folder`."""
    (log,) = folder.glob("*.wandb")
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(log)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def offline_runs(folder, cell="*"):
    return sorted((folder / "wandb").glob(f"offline-run-*-{cell}"))


def test_last_run_of_a_resumed_cell_has_the_whole_curve_and_the_row(tiny, tmp_path):
    config = tiny("logger=wandb_offline", "recipe.steps=60")
    cut = dataclasses.replace(config, machine=Machine(time_limit_seconds=0.001))
    assert run_cell(cut)["row"]["status"] == "unfinished"
    time.sleep(1.1)  # W&B names directories by the second
    row = run_cell(config)["row"]
    last = max(offline_runs(tmp_path, cell_name(config)), key=lambda path: path.name)
    text = inspect(last)
    records = [json.loads(line) for line in text.splitlines()]
    items = [record["history"]["item"] for record in records if record["type"] == "history"]
    for metric in ("train_loss", "validation_chain_exact_match"):
        assert [item["step"] for item in items if metric in item] == [20, 40, 60]
    assert f'"{row["run"]}"' in text and "answer_accuracy" in text


def test_wandb_variables_apply_where_our_keys_have_defaults(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_PROJECT", "theirs")
    monkeypatch.setenv("WANDB_NAME", "my name")
    monkeypatch.setenv("WANDB_TAGS", "first,my tag")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path / "elsewhere"))
    grid._composed.cache_clear()
    config = tiny("logger=wandb_offline", "recipe.steps=20")
    run_cell(config)
    (folder,) = offline_runs(tmp_path / "elsewhere")
    text = inspect(folder)
    assert all(word in text for word in ('"theirs"', '"my name"', '"my tag"', '"task:lis"'))
    for theirs, ours in (("disabled", "disabled"), ("dryrun", "offline"), ("", "offline")):
        monkeypatch.setenv("WANDB_MODE", theirs)
        grid._composed.cache_clear()
        found = tiny("logger=wandb_offline", "logger.project=mine").logger
        assert (found.mode, found.project) == (ours, "mine")


def test_wandb_error_gives_one_warning_and_the_run_continues(tiny, monkeypatch, capsys):
    def broken(*arguments, **settings):
        raise RuntimeError("no space left\nfor W&B")

    monkeypatch.setattr(wandb, "init", broken)
    assert run_cell(tiny("logger=wandb_offline", "recipe.steps=20"))["row"]["status"] == "done"
    warnings = [line for line in capsys.readouterr().err.splitlines() if "warning: W&B" in line]
    assert warnings == ["warning: W&B: no space left; continuing without it"]


def test_online_without_an_api_key_falls_back_to_offline(tiny, tmp_path, capsys):
    run_cell(tiny("logger=wandb_online", "recipe.steps=20"))
    assert len(offline_runs(tmp_path)) == 1
    assert "offline" in capsys.readouterr().err


def test_figures_and_table_are_logged_in_a_separate_run(tmp_path):
    figure, _ = plt.subplots()
    figure.savefig(tmp_path / "heatmap.png")
    plt.close(figure)
    logger = LoggerConfig(mode="offline", directory=str(tmp_path))
    table = pd.DataFrame({"dim": [8, 16], "steps": [1.0, None]})
    wandb_log.log_figures(logger, "mine", [tmp_path / "heatmap.png"], table)
    (folder,) = offline_runs(tmp_path)
    assert any((folder / "files" / "media" / "images").glob("heatmap*.png"))
    assert any((folder / "files" / "media" / "table").glob("results*.json"))
