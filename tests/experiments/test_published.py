"""Published results: names of rows follow from configurations, and a run reproduces the numbers."""

import ast
import itertools
import json
import random

import pandas as pd
import pytest
import yaml
from processes import ROOT

from experiments import table as tables
from experiments.config import cell_from
from experiments.d90 import passes, settings_of
from experiments.names import cell_name, run_name
from experiments.run import run_cell
from experiments.table import MEASURED, flat, identity, read_cells, read_table, text_rows
from training.data import BatchOrder
from training.trainer import Validation, still_improving

RESULTS = ROOT / "results"
EXPERIMENTS = sorted(path.parent.name for path in RESULTS.glob("*/results.csv"))
COMPARED = ["data_fingerprint", "params", "flops_total", "state_bytes", "max_len"]


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_names_of_committed_rows_follow_from_their_configurations(experiment):
    table, cells = read_table(RESULTS / experiment), read_cells(RESULTS / experiment)
    assert set(table["cell"]) == set(cells)
    for row in table.to_dict("records"):
        settings = cells[row["cell"]]["config"]
        config = cell_from(settings)
        assert (run_name(config), cell_name(config)) == (row["run"], row["cell"])
        assert {**row, **identity(settings)} == row
        assert settings["recipe"]["precision"] == row["precision"]


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_shared_settings_and_a_row_determine_the_configuration(experiment):
    folder = RESULTS / experiment
    cells = read_cells(folder)
    configs = [cell["config"] for cell in cells.values()]
    shared = tables.shared_settings(configs, tables.varying_keys(configs))
    assert yaml.safe_load((folder / "config.yaml").read_text()) == shared
    for row in text_rows(folder).values():
        config = cells[row["cell"]]["config"]
        measured = {f"measure.{key}": identity(config)[column] for key, column in MEASURED.items()}
        expected = {"task.format": "cot"} | flat(config) | measured
        given = {key: value for key, value in expected.items() if value is not None}
        assert settings_of_row(row, shared) == given


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_columns_of_training_follow_from_the_curve(experiment):
    cells = read_cells(RESULTS / experiment)
    for row in read_table(RESULTS / experiment).query("status == 'done'").to_dict("records"):
        columns = cells[row["cell"]]["curve"].values()
        curve = list(itertools.starmap(Validation, zip(*columns, strict=True)))
        good = [v.step for v in curve if v.validation_chain_exact_match >= 0.9]
        assert row["steps_to_90"] == good[0] if good else pd.isna(row["steps_to_90"])
        improving = None if pd.isna(row["still_improving"]) else row["still_improving"]
        assert (row["steps"], improving) == (curve[-1].step, still_improving(curve))


def test_rows_of_the_same_settings_have_the_same_data_and_flops():
    """Else `train.py cell=...` would not reproduce some of them."""
    found, each = {}, {}
    for experiment in EXPERIMENTS:
        table, cells = read_table(RESULTS / experiment), read_cells(RESULTS / experiment)
        done = table.dropna(subset="data_fingerprint")
        for row in done.to_dict("records"):
            config, fingerprint = cells[row["cell"]]["config"], row["data_fingerprint"]
            settings = json.dumps([config["task"], config["data"]], sort_keys=True)
            assert found.setdefault(settings, fingerprint) == fingerprint, (experiment, row["cell"])
            order = BatchOrder(config["data"]["train"], config["recipe"]["batch_size"], 0)
            flops = row["flops_training"] / order.sequences_before(int(row["steps"]))
            key = settings + json.dumps(config["model"], sort_keys=True)
            assert flops == pytest.approx(each.setdefault(key, flops), rel=1e-9)


def settings_of_row(text, shared):
    """The settings of a row (as text), under dotted keys, given those shared by all cells."""
    row = {key: parsed(value) for key, value in text.items()}
    found = dict(shared["all"])
    for section in ("task", "model", "recipe"):
        found |= shared[section].get(row[section], {})
    found |= {key: row[column] for key, column in tables.COLUMN_OF.items()}
    found |= {key: value for key, value in row.items() if "." in key}
    for key, column in MEASURED.items():
        found = {key: row[column], **found, f"measure.{key}": row[column]}
    return {key: value for key, value in found.items() if value is not None}


def parsed(text):
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text or None


@pytest.mark.parametrize(("names", "most"), [(EXPERIMENTS, 15), (["suite"], 30)])
def test_random_cell_reproduces_its_row(tmp_path, names, most):
    table = pd.concat(read_table(RESULTS / name).assign(of=name) for name in names)
    quick = table["train_seconds"] + table["eval_seconds"] < most
    trained = (table["stopped"] == "solved") & (table["cell"] == table["run"])
    keys = ["of", *settings_of(table), "dim"]
    seeds = table.assign(trained=trained).groupby(keys, dropna=False)["trained"]
    sure = seeds.transform("all") & (seeds.transform("size") >= 3)  # regardless of rounding
    rows = table[quick & sure & table["device"].str.startswith("cpu")]
    assert len(rows) > 10
    row = random.Random(len(table)).choice(rows.to_dict("records"))
    local = {"progress": False, "enter": False}
    local |= {"runs_dir": str(tmp_path / "runs"), "data_dir": str(tmp_path / "data")}
    settings = read_cells(RESULTS / row["of"])[row["cell"]]["config"]
    record = run_cell(cell_from({**settings, **local}))
    assert {key: record["row"][key] for key in COMPARED} == {key: row[key] for key in COMPARED}
    assert passes(record["row"]["answer_accuracy"])  # exact only on the same processor
