"""`python -m benchmarks steps` at a small size; its timings are read, not tested."""

import json

import pytest

from benchmarks import steps
from common import UserError


def test_every_model_stands_beside_standard(tmp_path, capsys):
    path = tmp_path / "steps.json"
    steps.main(["models=running_mean,linear", "size=2", "dim=8", "repeats=1", f"record={path}"])
    rows = {row["model"]: row for row in json.loads(path.read_text())["rows"]}
    assert set(rows) == {"standard", "running_mean", "linear"}
    assert rows["standard"]["ratio"] == 1
    assert rows["linear"]["ratio"] == rows["linear"]["seconds"] / rows["standard"]["seconds"]
    assert "running_mean" in capsys.readouterr().out


def test_an_unknown_model_is_named():
    with pytest.raises(UserError, match="models=mamba3: must be among"):
        steps.main(["models=mamba3"])


def test_all_models_but_the_cubic_one_are_timed():
    assert {"standard", "hybrid", "lstm"} <= set(steps.Options().models)
    assert "tensor" not in steps.Options().models
