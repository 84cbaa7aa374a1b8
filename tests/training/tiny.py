"""Small models and data for the tests of training."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import torch
from torch.nn import functional as F

from models.linear import LinearAttention
from models.sparse import SparseAttention
from models.standard import StandardAttention
from models.transformer import Transformer
from tasks.arithmetic import Arithmetic
from tasks.ed import EditDistance
from tasks.ed_local import EditDistanceLocal
from tasks.lis import LIS
from tasks.task import Task
from training.data import Batch
from training.device import Machine
from training.recipe import Recipe
from training.trainer import Trainer, Validation

MIXERS = {
    "standard": StandardAttention,
    "sparse": functools.partial(SparseAttention, block_size=4),
    "linear": LinearAttention,
}
TASKS = {
    "arithmetic": lambda: Arithmetic(3),
    "lis": lambda: LIS(6),
    "ed": lambda: EditDistance(4),
    "ed_local": lambda: EditDistanceLocal(4),
    "direct": lambda: Arithmetic(3, format="direct"),
}

TRAINER_KEYS = ("listener", "should_stop")
MACHINE_KEYS = ("compile", "checkpoint_seconds", "micro_batch_size")


def tiny_model(task: Task, mixer: str = "standard", dim: int = 16, seed: int = 0, **changes):
    torch.manual_seed(seed)
    return Transformer(len(task.vocabulary), task.max_len, dim, 2, 2, MIXERS[mixer], **changes)


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
    model = tiny_model(task, mixer, seed=seed, dropout=recipe.dropout)
    train, validation = task.draw(0, 1, 0, 200), task.draw(0, 2, 0, 50)
    return Trainer(model, recipe, seed, train, validation, folder, machine, **trainer_changes)


def loss_of(model: Transformer, batch: Batch):
    """The mean cross-entropy over the targets of a batch, padded or packed."""
    hidden = model.hidden(batch.inputs, batch.packing)
    return F.cross_entropy(model.head(batch.at_targets(hidden)), batch.targets)


def figures(row: Validation) -> list[float]:
    """A row of the curve without its step and its seconds, which no two runs share."""
    return list(dataclasses.astuple(row))[2:]
