"""What results/ publishes: every row's names follow from its configuration."""

import ast
import json
from pathlib import Path

import pandas as pd
import pytest
import yaml

from experiments.config import cell_from
from experiments.names import cell_name, identity, run_name
from experiments.table import (
    IN_COLUMNS,
    MEASURED,
    read_cells,
    read_table,
    shared_settings,
    text_rows,
)

RESULTS = Path(__file__).resolve().parents[2] / "results"
EXPERIMENTS = sorted(path.parent.name for path in RESULTS.glob("*/results.csv"))
LOCAL = {"logger": {"mode": "disabled"}}


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_names_of_committed_rows_follow_from_their_configurations(experiment):
    table, cells = read_table(RESULTS / experiment), read_cells(RESULTS / experiment)
    assert set(table["cell"]) == set(cells)
    for row in table.to_dict("records"):
        settings = cells[row["cell"]]["config"]
        config = cell_from({**settings, **LOCAL})
        assert (run_name(config), cell_name(config)) == (row["run"], row["cell"])
        if config.model.construct is None:
            assert {**row, **identity(settings)} == row
            assert settings["recipe"]["precision"] == row["precision"] or pd.isna(row["precision"])


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_what_cells_share_and_a_row_make_the_cells_configuration(experiment):
    folder = RESULTS / experiment
    shared = yaml.safe_load((folder / "config.yaml").read_text())
    cells = read_cells(folder)
    assert shared == json.loads(json.dumps(shared_settings([c["config"] for c in cells.values()])))
    for row in text_rows(folder).values():
        if row["status"] == "done":
            settings = config_of_row(row, shared)
            assert cell_name(cell_from({**settings, **LOCAL})) == row["cell"]


def config_of_row(text, shared):
    """Return the exact configuration of a row, read as text, from what all cells share."""
    row = {key: _parsed(value) for key, value in text.items()}
    found = dict(shared["all"])
    for section in ("task", "model", "recipe"):
        found |= shared[section].get(row[section], {})
    found |= {key: row[column] for key, column in IN_COLUMNS.items()}
    found |= {key: value for key, value in row.items() if "." in key and value is not None}
    for key, column in MEASURED.items():
        trained = found.setdefault(key, row[column])
        if trained != row[column]:
            found[f"measure.{key}"] = row[column]
    return nested(found)


def _parsed(text):
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text or None


def nested(settings):
    """Return settings under dotted keys as nested mappings."""
    found = {}
    for key, value in settings.items():
        *path, last = key.split(".")
        node = found
        for part in path:
            node = node.setdefault(part, {})
        node[last] = value
    return found
