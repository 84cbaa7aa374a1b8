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


def test_every_code_cell_runs_in_order_and_gives_the_figure(tmp_path):
    script = "\n".join("".join(cell["source"]) for cell in CODE)
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT / "docs", capture_output=True, text=True, check=False, timeout=500,
        env={**os.environ, "TMPDIR": str(tmp_path), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [results] = tmp_path.glob("*/results/first_look")
    [row] = pd.read_csv(results / "results.csv").to_dict("records")
    assert (row["model"], row["dim"], row["status"]) == ("linear", 32, "done")
    assert row["answer_accuracy"] > 0.5
    assert (results / "figures/learning_curves_arithmetic.png").stat().st_size > 10_000
    assert "None\nchain token 1" in done.stdout  # a right chain, a wrong one


def test_it_is_kept_as_it_ran():
    assert [cell["execution_count"] for cell in CODE] == list(range(1, len(CODE) + 1))
    outputs = [output for cell in CODE for output in cell["outputs"]]
    assert all(output["output_type"] != "error" for output in outputs)
    assert "image/png" in CODE[-1]["outputs"][-1]["data"]
