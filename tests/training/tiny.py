"""Small trainers for the training tests."""

import dataclasses
from pathlib import Path

import torch
from small_models import small_model
from torch.nn import functional as F

from models.transformer import Transformer
from tasks.sequences import SequenceSet
from tasks.task import Task
from training.device import Machine
from training.recipe import Recipe
from training.trainer import Trainer, Validation

MIXERS = ("standard", "sparse", "linear")


def tiny_recipe(**changes) -> Recipe:
    values = {"learning_rate": 1e-2, "batch_size": 16, "steps": 30, "validate_every": 10}
    return Recipe(**{"name": "tiny", **values, **changes})


def tiny_trainer(folder: Path, task: Task, mixer: str = "standard", seed: int = 0, **changes):
    def taken(*keys):
        return {key: changes.pop(key) for key in keys if key in changes}

    own = taken("listener", "should_stop")
    machine = Machine(device="cpu", **taken("compile", "checkpoint_seconds", "micro_batch_size"))
    recipe = tiny_recipe(**changes)
    model = small_model(task, mixer, seed=seed, dropout=recipe.dropout)
    train, validation = task.draw(0, 1, 0, 200), task.draw(0, 2, 0, 50)
    return Trainer(model, recipe, seed, train, validation, folder, machine, **own)


@torch.no_grad()
def plain_logits(model: Transformer, task: Task, sequences: SequenceSet, row: int):
    """Logits (n, V) at the counted tokens of one sequence, and these tokens (n,)."""
    if task.format != "tagged":
        prompt, length = int(sequences.prompt_lengths[row]), int(sequences.lengths[row])
        tokens = torch.from_numpy(sequences.tokens[row, :length].astype(int))
        return model(tokens[None, :-1])[0, prompt - 1 :], tokens[prompt:]
    example = task.decode(sequences, row)
    read = torch.from_numpy(task.vocabulary.encode(["<sep>", *example.prompt[:-1]]).astype(int))
    labels = torch.from_numpy(task.vocabulary.encode(example.answer).astype(int))
    return model(read[None])[0, 1:], labels


def plain_loss(found: list) -> float:
    """Mean cross-entropy over all counted tokens, from the `plain_logits` of each sequence."""
    return F.cross_entropy(*map(torch.cat, zip(*found, strict=True))).item()


def untimed(row: Validation) -> list[float]:
    """A row of the curve without its step and its seconds, which differ between runs."""
    return list(dataclasses.astuple(row))[2:]
