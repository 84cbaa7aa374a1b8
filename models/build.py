"""Build a model from the `model` config group."""

import functools
import inspect
import json
from collections.abc import Mapping
from typing import Any, Literal

import torch
from pydantic import ConfigDict, PositiveInt, PydanticUserError, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass
from torch import nn
from torch.overrides import TorchFunctionMode

from common import STRICT, UserError, did_you_mean, locate
from models.mixer import Mixer
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
    position: Literal["sinusoidal", "rope", "none"] = "sinusoidal"

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
    longest, ids = task.at_capacity.longest_lines, task.vocabulary.index
    return Transformer(
        vocab_size=len(task.vocabulary),
        max_len=task.at_capacity.max_len,
        dim=config.dim,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        mixer=[functools.partial(build_mixer, own, key, longest) for key, own in settings.items()],
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


def build_mixer(
    settings: Mapping[str, Any],
    key: str = "model.mixer",
    longest_lines: tuple[int, int] | None = None,
    **given: Any,
) -> Mixer:
    """The mixer of `settings` (`_target_` and its own parameters), found under config key `key`.
    `given` is what a `Transformer` gives to all; `longest_lines` are the task's."""
    target = settings.get("_target_")
    cls = locate(str(target), f"{key}._target_")
    if not (inspect.isclass(cls) and issubclass(cls, Mixer)):
        raise UserError(f"{key}._target_={target}: is not a subclass of models.mixer.Mixer")
    if cls.sees_lines:
        given["longest_lines"] = longest_lines
    own = {name: value for name, value in settings.items() if name != "_target_"}
    takes = {name: found for name, found in parameters_of(cls).items() if name not in given}
    for name, value in own.items():
        if name not in takes:
            raise UserError(
                f"{key}: {cls.__name__}: no parameter {name!r}; it takes "
                f"{', '.join(takes) or 'no parameters'}{did_you_mean(name, takes)}"
            )
        default = takes[name].default
        if value != default or type(value) is not type(default):
            _check(takes[name].annotation, value, f"{key}.{name}")
    return cls(**given, **own)


def parameters_of(cls: type) -> dict[str, inspect.Parameter]:
    """Parameters of a class, including those passed on to its bases."""
    found: dict[str, inspect.Parameter] = {}
    for source in inspect.getmro(cls):
        own = inspect.signature(source).parameters.values()
        for p in own:
            if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
                found.setdefault(p.name, p)
        if not any(p.kind == p.VAR_KEYWORD for p in own):
            break
    return found


def _check(kind: Any, value: Any, key: str) -> None:
    """Raise UserError for a value, as YAML gives it, that is not of an annotated `kind`."""
    if kind is inspect.Parameter.empty or isinstance(kind, str):  # unannotated, or not evaluated
        return
    config = ConfigDict(strict=True, arbitrary_types_allowed=True)
    try:
        TypeAdapter(kind, config=config).validate_json(json.dumps(value))
    except ValidationError as error:
        raise UserError(f"{key}={value!r}: {error.errors()[0]['msg']}") from None
    except PydanticUserError:
        return  # a kind that pydantic does not know
