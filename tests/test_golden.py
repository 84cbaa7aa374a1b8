"""Data, costs and weights are unchanged since results/ was produced.

After an intended change, bump the task's `generator_version` or RESULTS_VERSION
(`experiments.names`) and regenerate golden.json.
"""

import dataclasses
import json
import re

import pytest
from processes import ROOT

from common import compose_plain
from experiments.grid import cell_of, cells, load_experiment, with_model
from experiments.run import initial_model, load_data
from models.build import model_of_shapes
from tasks.data import DataConfig, load_or_build
from tasks.task import build_task
from training.trainer import Trainer

GOLDEN = json.loads((ROOT / "tests" / "golden.json").read_text())


@pytest.mark.parametrize("words", GOLDEN["data"])
def test_the_same_seed_gives_the_same_sequences(words, tmp_path):
    name, size, *others = words.split()
    settings = compose_plain("train", [f"task={name}", f"task.size={size}", *others])["task"]
    config = DataConfig(train=300, validation=50, test=100, seed=1)
    sets = load_or_build(build_task(settings), config, tmp_path, progress=False)
    assert sets.fingerprint == GOLDEN["data"][words]


def test_suite_data_match_the_documented_fingerprints(tmp_path):
    suite = with_model(load_experiment("suite"), "standard")
    found = {str(cell.config.task): cell.config for cell in cells(suite, ["progress=false"])}
    fingerprints = set()
    for config in found.values():
        own = dataclasses.replace(config, data_dir=str(tmp_path))
        fingerprints.add(load_data(own, build_task(config.task)).fingerprint[:16])
    page = (ROOT / "docs" / "suite.md").read_text(encoding="utf-8")
    assert fingerprints == set(re.findall(r"\b[0-9a-f]{16}\b", page))


@pytest.mark.parametrize("name", GOLDEN["flops"])
def test_flops_and_state_size_are_unchanged(name):
    config = cell_of([f"model={name}", "model.dim=32", "task=lis", "task.size=40"]).config
    model = model_of_shapes(config.model, build_task(config.task))
    expected = dict(GOLDEN["flops"][name])
    assert model.state_bytes(83) == expected.pop("state_bytes")
    assert {length: model.flops(int(length)) for length in expected} == expected


@pytest.mark.parametrize("name", GOLDEN["weights"])
def test_the_same_seed_gives_the_same_weights(name, tmp_path):
    """Up to rounding, which differs between processors."""
    words = [f"model={name}", "model.dim=32", "task.size=3", "recipe.steps=50"]
    config = cell_of([*words, "recipe.validate_every=50"]).config
    task = build_task(config.task)
    sizes = DataConfig(train=2000, validation=100, test=100)
    data = load_or_build(task, sizes, tmp_path, progress=False)
    model = initial_model(config, task)
    trainer = Trainer(model, config.recipe, 0, data.train, data.validation, tmp_path)
    trainer.fit()
    found = [float(p.detach().double().square().sum()) for p in trainer.raw_model.parameters()]
    assert found == pytest.approx(GOLDEN["weights"][name], rel=1e-3)
