"""Build a model from the `model` config group."""

import functools
from collections.abc import Mapping
from typing import Any

import torch
from pydantic import PositiveInt
from pydantic.dataclasses import dataclass
from torch import nn
from torch.overrides import TorchFunctionMode

from common import STRICT, UserError, construct
from models.mixer import Mixer, Position
from models.transformer import Transformer
from tasks.task import Task


@dataclass(frozen=True, config=STRICT)
class ModelConfig:
    """The `model` group: a transformer of D `dim`, M `num_layers` and H `num_heads`. `mixer` holds
    `_target_` and that class's own parameters; `mixers` is a list of these, used in turn."""

    name: str
    dim: PositiveInt
    num_layers: PositiveInt
    num_heads: PositiveInt
    mixer: dict[str, Any] | None = None
    mixers: list[dict[str, Any]] | None = None
    position: Position = "sinusoidal"

    def __post_init__(self) -> None:
        if (self.mixer is None) == (self.mixers is None):
            raise UserError(f"model {self.name}: set exactly one of model.mixer, model.mixers")
        if self.mixers is not None and not 1 <= len(self.mixers) <= self.num_layers:
            raise UserError(
                f"model.mixers: {len(self.mixers)} mixers; "
                f"must be 1 to model.num_layers={self.num_layers}, cycled over the layers"
            )


def build_model(config: ModelConfig, task: Task, dropout: float = 0.0) -> Transformer:
    """A model sized for `task`, initialised by torch's generator. Raises UserError for an unknown
    target, wrong parameters, or sizes that do not fit."""
    if config.mixers is None:
        settings = {"model.mixer": config.mixer or {}}
    else:
        settings = {f"model.mixers.{i}": own for i, own in enumerate(config.mixers)}
    ids, shared = task.vocabulary.index, {"longest_lines": task.at_capacity.longest_lines}
    return Transformer(
        vocab_size=len(task.vocabulary),
        max_len=task.at_capacity.max_len,
        dim=config.dim,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        mixer=[functools.partial(build_mixer, own, key, **shared) for key, own in settings.items()],
        dropout=dropout,
        position=config.position,
        line_ends=[ids[token] for token in task.line_ends],
    )


def model_of_shapes(config: ModelConfig, task: Task) -> Transformer:
    """`build_model` with uninitialised weights, for FLOPs and bytes: initialising large ones takes
    most of the time. (On the meta device, attention patterns cannot be built.)"""
    with _SkipInit():
        return build_model(config, task)


class _SkipInit(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.Tensor.uniform_, nn.init.uniform_, nn.init.kaiming_uniform_):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


def build_mixer(settings: Mapping[str, Any], key: str = "model.mixer", **given: Any) -> Mixer:
    """The mixer of `settings` (`_target_` and its own parameters), found under config key `key`.
    `given` is offered to all; a mixer takes what its constructor names."""
    mixer = construct(Mixer, settings, key, **given)
    if given.get("position") == "rope" and mixer.position != "rope":
        raise UserError(f"{key}: {type(mixer).__name__} takes no `position`, so it cannot rotate")
    return mixer
