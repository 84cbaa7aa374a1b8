"""The notebook in docs/ runs from top to bottom, and what it shows is kept with it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = json.loads((ROOT / "docs/first_look.ipynb").read_text(encoding="utf-8"))
CODE = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


def test_every_cell_runs_in_order(tmp_path):
    script = "\n".join("".join(cell["source"]) for cell in CODE)
    shortened = script.replace("recipe=quick", "recipe=quick recipe.steps=50")
    assert shortened != script
    done = subprocess.run(
        [sys.executable, "-c", shortened],
        cwd=ROOT / "docs", capture_output=True, text=True, timeout=300,
        env={**os.environ, "TMPDIR": str(tmp_path), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "None\nchain token 1" in done.stdout  # a right chain, a wrong one
    assert "model " in done.stdout and "right  9 - 1 = 8" in done.stdout
    [table] = tmp_path.glob("*/outputs/manual/results.csv")
    assert pd.read_csv(table)["status"].tolist() == ["done"]


def test_it_is_kept_as_it_ran():
    assert [cell["execution_count"] for cell in CODE] == list(range(1, len(CODE) + 1))
    outputs = [output for cell in CODE for output in cell["outputs"]]
    assert all(output["output_type"] != "error" for output in outputs)
    assert "image/png" in CODE[-1]["outputs"][-1]["data"]
