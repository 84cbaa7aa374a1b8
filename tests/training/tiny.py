"""Small trainers for the tests of training."""

import dataclasses
from pathlib import Path

from small_models import small_model
from torch.nn import functional as F

from models.transformer import Transformer
from tasks.task import Task
from training.data import Batch
from training.device import Machine
from training.recipe import Recipe
from training.trainer import Trainer, Validation

MIXERS = ("standard", "sparse", "linear")
TRAINER_KEYS = ("listener", "should_stop")
MACHINE_KEYS = ("compile", "checkpoint_seconds", "micro_batch_size")


def tiny_recipe(**changes) -> Recipe:
    values = {
        "name": "tiny",
        "learning_rate": 1e-2,
        "batch_size": 16,
        "steps": 30,
        "validate_every": 10,
    }
    return Recipe(**{**values, **changes})


def tiny_trainer(folder: Path, task: Task, mixer: str = "standard", seed: int = 0, **changes):
    trainer_changes = {key: changes.pop(key) for key in TRAINER_KEYS if key in changes}
    machine = Machine(
        device="cpu", **{key: changes.pop(key) for key in MACHINE_KEYS if key in changes}
    )
    recipe = tiny_recipe(**changes)
    model = small_model(task, mixer, seed=seed, dropout=recipe.dropout)
    train, validation = task.draw(0, 1, 0, 200), task.draw(0, 2, 0, 50)
    return Trainer(model, recipe, seed, train, validation, folder, machine, **trainer_changes)


def loss_of(model: Transformer, batch: Batch):
    """The mean cross-entropy over the targets of a batch, padded or packed."""
    hidden = model.hidden(batch.inputs, batch.packing)
    return F.cross_entropy(model.head(batch.at_targets(hidden)), batch.targets)


def figures(row: Validation) -> list[float]:
    """A row of the curve without its step and its seconds, which no two runs share."""
    return list(dataclasses.astuple(row))[2:]
