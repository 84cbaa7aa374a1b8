"""From the configuration to objects: Hydra's ``_target_`` finds the class, no registry."""

from __future__ import annotations

import functools

import torch

from config.schema import CellConfig, ModelConfig
from errors import UserError
from instantiate import check_parameters, locate
from models.initialisation import scale_embedding
from models.transformer import Transformer
from tasks.by_name import build_task
from tasks.task import Task

_MIXER_ARGUMENTS = {"dim", "num_heads", "max_len", "dropout", "position"}


def build_model(config: ModelConfig, task: Task, dropout: float) -> Transformer:
    """Return an initialised transformer for ``task``; draws from torch's global generator."""
    own = {k: v for k, v in config.mixer.items() if k != "_target_"}
    cls = locate(config.mixer.get("_target_"), "model.mixer._target_", wanted=torch.nn.Module)
    check_parameters(cls, own, "model.mixer", reserved=_MIXER_ARGUMENTS)
    try:
        return Transformer(
            vocab_size=len(task.vocabulary),
            max_len=task.room.max_len,
            dim=config.dim,
            num_layers=config.num_layers,
            num_heads=config.num_heads,
            mixer=functools.partial(cls, **own),
            dropout=dropout,
            position=config.position,
        )
    except (TypeError, ValueError) as error:
        raise UserError(f"model {config.name}: {error}") from None


def initial_model(config: CellConfig, task: Task, device: torch.device) -> Transformer:
    """Return the cell's model before its first step, as its seed and its recipe make it."""
    torch.manual_seed(config.seed)
    model = build_model(config.model, task, config.recipe.dropout).to(device)
    scale_embedding(model, config.recipe.embedding_ratio)
    return model


def check_buildable(config: CellConfig) -> tuple[Task, Transformer]:
    """Build task and model, so that a bad cell never starts; the model's cost can be asked.

    On the meta device, without memory, unless a mixer's constructor needs real tensors.
    """
    task = build_task(config.task)
    try:
        with torch.device("meta"):
            return task, build_model(config.model, task, config.recipe.dropout)
    except NotImplementedError:
        return task, build_model(config.model, task, config.recipe.dropout)
