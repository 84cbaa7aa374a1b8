"""The notebooks in docs/ run from top to bottom and are saved with their outputs."""

import json
import sys
import tempfile

import pandas as pd
import pytest
from processes import ROOT

NOTEBOOKS = sorted((ROOT / "docs").glob("*.ipynb"))


def code_cells(name):
    notebook = json.loads((ROOT / f"docs/{name}.ipynb").read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Return a function that runs a notebook with 50 training steps and returns its printed output
    and results table."""

    def run(name):
        monkeypatch.chdir(ROOT / "docs")
        monkeypatch.setattr(sys, "path", [*sys.path])
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        script = "\n".join("".join(cell["source"]) for cell in code_cells(name))
        shortened = script.replace("recipe=quick", "recipe=quick recipe.steps=50")
        assert shortened != script
        exec(compile(shortened, name, "exec"), {})
        [table] = tmp_path.glob("*/outputs/manual/results.csv")
        return capsys.readouterr().out, pd.read_csv(table)

    return run


def test_first_look_runs(run):
    printed, table = run("first_look")
    assert "None\nchain token 1" in printed  # a correct chain, a wrong one
    assert "model " in printed and "right  9 - 1 = 8" in printed
    assert table["status"].tolist() == ["done"]
    assert "image/png" in code_cells("first_look")[-1]["outputs"][-1]["data"]


def test_trained_model_runs(run):
    printed, table = run("trained_model")
    assert "right  9 - 1 = 8" in printed and "of 200 chains go wrong" in printed
    assert table["heads"].tolist() == [1, 2, 4] and set(table["status"]) == {"done"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_saved_after_a_complete_run(path):
    cells = code_cells(path.stem)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert outputs and all(output["output_type"] != "error" for output in outputs)
