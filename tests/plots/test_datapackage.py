"""The description of a results table, held against the table itself."""

import csv
import datetime
import hashlib
import json
import shutil
from pathlib import Path

import pytest

from plots import datapackage
from plots.redraw import AdHoc
from records.reading import read
from records.table import COLUMNS

RESULTS = Path(__file__).resolve().parents[2] / "results"
# Table Schema: how the text of a cell is read.
READ = {
    "integer": int,
    "number": float,
    "string": str,
    "boolean": {"True": True, "False": False}.__getitem__,
    "datetime": datetime.datetime.fromisoformat,
}


@pytest.fixture(params=["quick", "longer"])
def folder(request, tmp_path):
    shutil.copy(RESULTS / request.param / "results.csv", tmp_path)
    datapackage.write(read(tmp_path / "results.csv"), AdHoc(request.param), tmp_path)
    return tmp_path


def test_every_value_is_what_its_field_says(folder):
    [resource] = json.loads((folder / "datapackage.json").read_text())["resources"]
    fields = resource["schema"]["fields"]
    with (folder / resource["path"]).open(newline="") as file:
        header, *rows = csv.reader(file)
    assert [field["name"] for field in fields] == header
    for field, column in zip(fields, zip(*rows, strict=True), strict=True):
        values = [READ[field["type"]](text) for text in column if text != ""]
        bounds = field.get("constraints", {})
        assert all(bounds.get("minimum", value) <= value for value in values)
        assert all(value <= bounds.get("maximum", value) for value in values)
        assert set(values) <= set(bounds.get("enum", values))
        assert not bounds.get("required") or len(values) == len(rows)
        assert not bounds.get("unique") or len(set(values)) == len(rows)
    content = (folder / "results.csv").read_bytes()
    assert resource["hash"] == "sha256:" + hashlib.sha256(content).hexdigest()
    assert resource["bytes"] == len(content)


def test_every_column_that_all_tables_have_is_explained():
    assert list(datapackage.MEANING) and set(COLUMNS) == set(datapackage.MEANING)


def test_a_setting_that_varies_is_typed_by_its_values(folder):
    table = read(folder / "results.csv")
    table["recipe.dropout"], table["model.position"] = "0.1", "rope"
    assert datapackage.field("recipe.dropout", table)["type"] == "number"
    assert datapackage.field("model.position", table)["type"] == "string"


@pytest.mark.parametrize("name", ["quick", "longer"])
def test_the_committed_descriptions_are_those_of_the_committed_tables(name):
    """`python -m plots experiment=NAME` writes them anew."""
    [resource] = json.loads((RESULTS / name / "datapackage.json").read_text())["resources"]
    content = (RESULTS / name / "results.csv").read_bytes()
    assert resource["hash"] == "sha256:" + hashlib.sha256(content).hexdigest()
