"""From the configuration to objects: Hydra's ``_target_`` finds the class, no registry."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from typing import Any

import torch

from config.schema import CellConfig, ModelConfig
from errors import UserError
from models.initialisation import scale_embedding
from models.transformer import Transformer
from tasks.task import Task

LARGEST_PARAMETER = 100_000
_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")
_MIXER_ARGUMENTS = {"dim", "num_heads", "max_len", "dropout", "position"}


def locate(target: Any, key: str) -> Any:
    """Return the class that the dotted path ``target`` names, or raise `UserError`."""
    if not isinstance(target, str) or not _DOTTED.fullmatch(target):
        raise UserError(f"{key}={target!r}: must be a dotted path such as tasks.lis.LIS")
    module_name, _, attribute = target.rpartition(".")
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except ModuleNotFoundError as error:
        raise UserError(
            f"{key}={target}: no module named {error.name!r} (is its folder on PYTHONPATH?)"
        ) from None
    except AttributeError:
        raise UserError(f"{key}={target}: {module_name} has no {attribute!r}") from None
    except (ImportError, SyntaxError) as error:
        raise UserError(f"{key}={target}: {module_name} cannot be imported ({error})") from None


def build_task(task: dict[str, Any]) -> Task:
    """Return the task that the `task` group describes; unknown parameters are errors."""
    parameters = {k: v for k, v in task.items() if k not in ("_target_", "name")}
    cls = locate(task.get("_target_"), "task._target_")
    _require_known(cls, parameters, "task")
    _require_sane(parameters, "task")
    size = parameters.get("size")
    if not isinstance(size, int) or isinstance(size, bool):
        raise UserError(f"task.size={size!r}: must be a whole number")
    return _construct(cls, parameters, "task")


def build_model(config: ModelConfig, task: Task, dropout: float) -> Transformer:
    """Return an initialised transformer for ``task``; draws from torch's global generator."""
    own = {k: v for k, v in config.mixer.items() if k != "_target_"}
    cls = locate(config.mixer.get("_target_"), "model.mixer._target_")
    _require_known(cls, own, "model.mixer", also=_MIXER_ARGUMENTS)
    _require_sane(own, "model.mixer")
    try:
        return Transformer(
            vocab_size=len(task.vocabulary),
            max_len=task.max_len,
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


def _require_known(cls: Any, given: dict[str, Any], key: str, also: set[str] | None = None) -> None:
    known: set[str] = set()
    for base in inspect.getmro(cls) if inspect.isclass(cls) else [cls]:
        if base is object or "__init__" not in vars(base):
            continue
        parameters = inspect.signature(vars(base)["__init__"]).parameters.values()
        known |= {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    own = sorted(known - (also or set()) - {"self"})
    for name in given:
        if name not in own:
            raise UserError(f"unknown key {key}.{name}; {cls.__name__} takes {', '.join(own)}")


def _require_sane(parameters: dict[str, Any], key: str) -> None:
    """Refuse numbers that would only fill the memory: vocabularies and masks grow with them."""
    for name, value in parameters.items():
        if isinstance(value, int | float) and not abs(value) <= LARGEST_PARAMETER:
            raise UserError(f"{key}.{name}={value}: must be at most {LARGEST_PARAMETER:,}")


def _construct(cls: Any, parameters: dict[str, Any], key: str) -> Any:
    try:
        return cls(**parameters)
    except (TypeError, ValueError) as error:
        given = ", ".join(f"{k}={v!r}" for k, v in parameters.items())
        raise UserError(f"{key} ({given}): {error}") from None
