"""The suite's frozen data, and its references."""

import dataclasses
import re
from pathlib import Path

from experiments.grid import cells, load_experiment, with_model
from experiments.run import load_data
from tasks.task import build_task

ROOT = Path(__file__).resolve().parents[2]
CELLS = cells(with_model(load_experiment("suite"), "standard"), ["logger=none", "progress=false"])


def test_data_are_the_frozen_ones(tmp_path):
    page = (ROOT / "docs/suite.md").read_text(encoding="utf-8")
    configs = {str(cell.config.task): cell.config for cell in CELLS}
    found = set()
    for config in configs.values():
        own = dataclasses.replace(config, data_dir=str(tmp_path))
        found.add(load_data(own, build_task(config.task)).fingerprint[:16])
    assert found == set(re.findall(r"\b[0-9a-f]{16}\b", page))


def test_standard_attention_runs_beside_the_model_under_test():
    both = with_model(load_experiment("suite"), "linear")
    assert all(part["model"] == ["standard", "linear"] for part in both.grid)
    assert len(cells(both)) == 2 * len(CELLS)
