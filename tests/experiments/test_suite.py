"""The suite's frozen data, and its published rows: one drawn cell is trained again."""

import dataclasses
import random
import re
from pathlib import Path

import pandas as pd

from experiments.config import cell_from
from experiments.d90 import passes
from experiments.grid import cells, load_experiment, with_model
from experiments.run import load_data, run_cell
from experiments.table import read_cells
from tasks.task import build_task

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results/suite"
CELLS = cells(with_model(load_experiment("suite"), "standard"), ["logger=none", "progress=false"])
COMPARED = ["data_fingerprint", "params", "flops_total", "state_bytes", "max_len"]


def test_data_are_the_frozen_ones(tmp_path):
    page = (ROOT / "docs/suite.md").read_text(encoding="utf-8")
    configs = {str(cell.config.task): cell.config for cell in CELLS}
    found = set()
    for config in configs.values():
        own = dataclasses.replace(config, data_dir=str(tmp_path))
        found.add(load_data(own, build_task(config.task)).fingerprint[:16])
    assert found == set(re.findall(r"\b[0-9a-f]{16}\b", page))


def test_a_drawn_cell_trains_to_what_its_row_says(tmp_path):
    table = pd.read_csv(RESULTS / "results.csv", dtype={"cell": str, "run": str})
    table = table[(table["status"] == "done") & (table["cell"] == table["run"])]
    table = table[table["device"].str.startswith("cpu")]  # tensor attention takes minutes on one
    quick = table[(table["stopped"] == "solved") & (table["train_seconds"] < 30)]
    row = random.Random(len(table)).choice(quick.to_dict("records"))
    local = {"logger": {"mode": "disabled"}, "progress": False, "enter": False}
    local |= {"runs_dir": str(tmp_path / "runs"), "data_dir": str(tmp_path / "data")}
    record = run_cell(cell_from({**read_cells(RESULTS)[row["cell"]]["config"], **local}))
    assert {key: record["row"][key] for key in COMPARED} == {key: row[key] for key in COMPARED}
    assert passes(record["row"]["answer_accuracy"])  # to the digit only on the same processor


def test_standard_attention_runs_beside_the_model_under_test():
    both = with_model(load_experiment("suite"), "linear")
    assert all(part["model"] == ["standard", "linear"] for part in both.grid)
    assert len(cells(both)) == 2 * len(CELLS)
