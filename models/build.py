"""Build a model from the `model` config group."""

import functools
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from pydantic import ConfigDict, PositiveInt, PydanticUserError, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass
from torch import nn
from torch.overrides import TorchFunctionMode

from common import UserError, did_you_mean, locate
from models.mixer import Mixer
from models.transformer import Transformer
from tasks.task import Task


@dataclass(frozen=True, config=ConfigDict(extra="forbid", strict=True))
class ModelConfig:
    """The `model` group: a transformer to train, or constructed weights.

    `mixer` holds `_target_` and that class's own parameters; `mixers` is a list of these, used in
    turn. `dim`, `num_layers`, `num_heads` are D, M, H. `construct` instead holds the `_target_` of
    a function that returns a finished model for a task, and its parameters.
    """

    name: str
    dim: PositiveInt | None = None
    num_layers: PositiveInt | None = None
    num_heads: PositiveInt | None = None
    mixer: dict[str, Any] | None = None
    mixers: list[dict[str, Any]] | None = None
    construct: dict[str, Any] | None = None
    position: Literal["sinusoidal", "rope", "none"] = "sinusoidal"

    def __post_init__(self) -> None:
        if [self.mixer, self.mixers, self.construct].count(None) != 2:
            raise UserError(
                f"model {self.name}: set exactly one of model.mixer, model.mixers, model.construct"
            )
        if self.construct is not None:
            return
        for key in ("dim", "num_layers", "num_heads"):
            if getattr(self, key) is None:
                raise UserError(f"model.{key}=null: must be a whole number of at least 1")
        if self.mixers is not None and not 1 <= len(self.mixers) <= (self.num_layers or 0):
            raise UserError(
                f"model.mixers: {len(self.mixers)} mixers; "
                f"must be 1 to model.num_layers={self.num_layers}, which take them in turn"
            )


def build_model(config: ModelConfig, task: Task, dropout: float = 0.0) -> Transformer:
    """A model sized for `task`, initialised by torch's generator, or constructed. Raises UserError
    for an unknown target, wrong parameters, or sizes that do not fit."""
    if config.construct is not None:
        return _constructed(config.construct, task)
    assert config.dim and config.num_layers and config.num_heads
    if config.mixers is None:
        settings = {"model.mixer": config.mixer or {}}
    else:
        settings = {f"model.mixers.{i}": own for i, own in enumerate(config.mixers)}
    lines, ids = task.at_capacity.longest_lines, task.vocabulary.index
    return Transformer(
        vocab_size=len(task.vocabulary),
        max_len=task.at_capacity.max_len,
        dim=config.dim,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        mixer=[functools.partial(build_mixer, own, key, lines) for key, own in settings.items()],
        dropout=dropout,
        position=config.position,
        line_ends=[ids[token] for token in task.line_ends],
    )


def model_of_shapes(config: ModelConfig, task: Task) -> Transformer:
    """`build_model` with weights left as allocated, for FLOPs and bytes: drawing large ones takes
    most of the time."""
    with _Undrawn():
        return build_model(config, task)


class _Undrawn(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.Tensor.uniform_, nn.init.uniform_, nn.init.kaiming_uniform_):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


def build_mixer(
    settings: Mapping[str, Any],
    key: str = "model.mixer",
    lines: tuple[int, int] | None = None,
    **given: Any,
) -> Mixer:
    """The mixer of `settings` (`_target_` and its own parameters), found under config key `key`.
    `given` is what a `Transformer` gives to all; `lines` are the task's `longest_lines`."""
    target = settings.get("_target_")
    cls = locate(str(target), f"{key}._target_")
    if not (inspect.isclass(cls) and issubclass(cls, Mixer)):
        raise UserError(f"{key}._target_={target}: is not a subclass of models.mixer.Mixer")
    seen = {"lines": lines} if cls.sees_lines else {}
    return _called(cls, settings, {**given, **seen}, key)


def _constructed(settings: Mapping[str, Any], task: Task) -> Transformer:
    key = "model.construct"
    function = locate(str(settings.get("_target_")), f"{key}._target_")
    model = _called(function, settings, {"task": task}, key)
    if not isinstance(model, Transformer):
        raise UserError(f"{key}: must return a models.transformer.Transformer, not {type(model)}")
    if model.vocab_size != len(task.vocabulary) or model.max_len < task.at_capacity.max_len:
        raise UserError(
            f"{key}: the model it returns is too small for the task's vocabulary or sequences"
        )
    return model


def parameters_of(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Parameters of a function, or of a class including those passed on to its bases."""
    found: dict[str, inspect.Parameter] = {}
    for source in inspect.getmro(function) if inspect.isclass(function) else [function]:
        own = inspect.signature(source).parameters.values()
        for p in own:
            if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
                found.setdefault(p.name, p)
        if not any(p.kind == p.VAR_KEYWORD for p in own):
            break
    return found


def _called(
    function: Callable[..., Any], settings: Mapping[str, Any], given: dict[str, Any], key: str
) -> Any:
    """Call `function` with `given` and its own `settings`; UserError if a name or an annotated
    value does not fit."""
    own = {name: value for name, value in settings.items() if name != "_target_"}
    takes = {name: own for name, own in parameters_of(function).items() if name not in given}
    for name, value in own.items():
        if name not in takes:
            raise UserError(
                f"{key}: {function.__name__}: no parameter {name!r}; it takes "
                f"{', '.join(takes) or 'no parameters'}{did_you_mean(name, takes)}"
            )
        if value != takes[name].default:
            _check(takes[name].annotation, value, f"{key}.{name}")
    return function(**given, **own)


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
