import pytest

from experiments.config import compose_plain
from experiments.grid import cell_of

# LIS of four numbers, seconds of training; learns to about 80 % of the answers.
TINY = [
    "task=lis", "task.size=4", "task.number_range=20", "model.dim=16", "model.num_layers=1",
    "recipe.steps=60", "recipe.validate_every=20", "recipe.warmup_steps=10",
    "data.train=400", "data.validation=50", "data.test=60", "logger=none", "progress=false",
]  # fmt: skip


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Return a function from further overrides to a cell's configuration, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *words: cell_of([*TINY, *words]).config


@pytest.fixture
def composed():
    """Return what Hydra composes for train.py from overrides."""
    return lambda *words: compose_plain("train", list(words))
