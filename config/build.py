"""From a configuration to objects: Hydra's ``_target_`` names the class, no registry."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

from common import UserError
from config.schema import CellConfig, ModelConfig
from instantiate import check_parameters, construct, locate
from models.initialisation import scale_embedding
from models.mixer import Mixer
from models.transformer import Transformer
from tasks.by_name import build_task
from tasks.task import Task

_GIVEN_TO_MIXERS = ("dim", "num_heads", "max_len", "dropout", "position")


def measured_settings(config: CellConfig) -> dict[str, Any]:
    """Return the settings of the task that is measured: the trained one's, as `measure` has it."""
    changes = {key: value for key, value in config.measure.task.items() if value is not None}
    return {**config.task, **changes}


def build_measured_task(config: CellConfig, trained: Task) -> Task:
    """Return the task that is measured; `UserError` where its sequences do not fit the model."""
    settings = measured_settings(config)
    if settings == config.task:
        return trained
    measured = build_task(settings)
    trained.require_room_for(measured)
    return measured


def build_model(config: ModelConfig, task: Task, dropout: float) -> Transformer:
    """Return a model with room for ``task``: constructed, or initialised by torch's generator."""
    if config.construct is not None:
        return _constructed(config, task)
    if config.mixers is None:
        mixers = [_mixer(config.mixer, "model.mixer")]
    else:
        mixers = [_mixer(own, f"model.mixers.{i}") for i, own in enumerate(config.mixers)]
    sizes = {"dim": config.dim, "num_layers": config.num_layers, "num_heads": config.num_heads}
    try:
        return Transformer(
            vocab_size=len(task.vocabulary),
            max_len=task.room.max_len,
            mixer=mixers,
            dropout=dropout,
            position=config.position,
            **sizes,  # type: ignore[arg-type]
        )
    except (TypeError, ValueError) as error:
        raise UserError(f"model {config.name}: {error}") from None
    except (LookupError, AttributeError, AssertionError) as error:  # whose texts name no culprit
        reason = f"{type(error).__name__}: {error} (HYDRA_FULL_ERROR=1 shows where)"
        raise UserError(f"model {config.name}: {reason}") from error


def _mixer(settings: Any, key: str) -> Callable[..., Mixer]:
    """Return what makes a layer's mixer, once its class and its parameters' names are known."""
    own = {name: value for name, value in settings.items() if name != "_target_"}
    cls = locate(settings.get("_target_"), f"{key}._target_", Mixer)
    check_parameters(cls, own, key, _GIVEN_TO_MIXERS)
    return functools.partial(cls, **own)


def _constructed(config: ModelConfig, task: Task) -> Transformer:
    assert config.construct is not None
    own = {key: value for key, value in config.construct.items() if key != "_target_"}
    key = "model.construct"
    function = locate(config.construct.get("_target_"), f"{key}._target_", FunctionType)
    model = construct(function, own, key, {"task": task})
    if not isinstance(model, Transformer):
        raise UserError(f"{key}: must return a models.transformer.Transformer, not {type(model)}")
    if model.vocab_size != len(task.vocabulary) or model.max_len < task.room.max_len:
        raise UserError(f"{key}: the model it returns has no room for the task's sequences")
    return model


def initial_model(config: CellConfig, task: Task, device: torch.device) -> Transformer:
    """Return the cell's model before its first step, as its seed and its recipe make it."""
    torch.manual_seed(config.seed)
    model = build_model(config.model, task, config.recipe.dropout).to(device)
    scale_embedding(model.embedding, config.recipe.embedding_ratio)
    return model


def check_buildable(config: CellConfig) -> tuple[Task, Transformer]:
    """Build task and model, so that a bad cell never starts; the model's cost can be asked.

    On the meta device, without memory, unless a constructor needs real tensors.
    """
    task = build_task(config.task)
    build_measured_task(config, task)
    if config.model.construct is not None:
        return task, build_model(config.model, task, 0.0)
    try:
        with torch.device("meta"):
            return task, build_model(config.model, task, config.recipe.dropout)
    except RuntimeError:  # a wrong shape is told again, in the words for real tensors
        return task, build_model(config.model, task, config.recipe.dropout)
