"""The notebooks in docs/ run from top to bottom, and what they show is kept with them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "docs").glob("*.ipynb"))


def code_cells(name):
    notebook = json.loads((ROOT / f"docs/{name}.ipynb").read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run(name, folder):
    """Run the code with trainings of 50 steps; return what it prints and the table of its runs."""
    script = "\n".join("".join(cell["source"]) for cell in code_cells(name))
    shortened = script.replace("recipe=quick", "recipe=quick recipe.steps=50")
    assert shortened != script
    done = subprocess.run(
        [sys.executable, "-c", shortened],
        cwd=ROOT / "docs", capture_output=True, text=True, timeout=300,
        env={**os.environ, "TMPDIR": str(folder), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [table] = folder.glob("*/outputs/manual/results.csv")
    return done.stdout, pd.read_csv(table)


def test_first_look_runs(tmp_path):
    printed, table = run("first_look", tmp_path)
    assert "None\nchain token 1" in printed  # a right chain, a wrong one
    assert "model " in printed and "right  9 - 1 = 8" in printed
    assert table["status"].tolist() == ["done"]
    assert "image/png" in code_cells("first_look")[-1]["outputs"][-1]["data"]


def test_trained_model_runs(tmp_path):
    printed, table = run("trained_model", tmp_path)
    assert "right  9 - 1 = 8" in printed and "of 200 chains go wrong" in printed
    assert table["heads"].tolist() == [1, 2, 4] and set(table["status"]) == {"done"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_kept_as_it_ran(path):
    cells = code_cells(path.stem)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert outputs and all(output["output_type"] != "error" for output in outputs)
