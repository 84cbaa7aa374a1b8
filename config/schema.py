"""What a configuration may hold: types, ranges, unknown keys.

Hydra composes YAML; this module decides whether the result is a cell.  Validation is a single
call, so that launcher, sweep, evaluation and plots refuse the same things with the same words.
Only that call needs pydantic: cells validated elsewhere also run on a machine without it.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from errors import UserError
from training.recipe import Recipe

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_STRICT: dict[str, Any] = {"extra": "forbid", "strict": True}

DECIDING_KEYS = ("task", "model", "recipe", "data", "seed")


@dataclass(frozen=True)
class ModelConfig:
    """The `model` group; ``mixer`` holds ``_target_`` and that class's own parameters."""

    name: str
    dim: int
    num_layers: int
    num_heads: int
    mixer: dict[str, Any]
    position: Literal["sinusoidal", "rope", "none"] = "sinusoidal"

    __pydantic_config__: ClassVar[dict] = _STRICT

    def __post_init__(self) -> None:
        for key, most in (("dim", 2**16), ("num_layers", 1000), ("num_heads", 2**16)):
            if not 1 <= getattr(self, key) <= most:
                raise UserError(f"model.{key}={getattr(self, key)}: must be from 1 to {most}")
        if self.dim % self.num_heads:
            raise UserError(
                f"model.dim={self.dim}: must be divisible by model.num_heads={self.num_heads}"
            )
        if self.dim % 2:
            raise UserError(f"model.dim={self.dim}: must be even (sine and cosine positions)")


@dataclass(frozen=True)
class DataConfig:
    """The `data` group: numbers of sequences, the data seed, and files to use instead."""

    train: int
    validation: int
    test: int
    seed: int = 0
    file: str | None = None
    train_file: str | None = None

    __pydantic_config__: ClassVar[dict] = _STRICT

    def __post_init__(self) -> None:
        for key in ("train", "validation", "test"):
            if not 1 <= getattr(self, key) <= 10**9:
                raise UserError(f"data.{key}={getattr(self, key)}: must be from 1 to 1,000,000,000")
        if not 0 <= self.seed < 2**63:
            raise UserError(f"data.seed={self.seed}: must be in [0, 2^63)")


@dataclass(frozen=True)
class LoggerConfig:
    """The `logger` group (W&B)."""

    mode: Literal["offline", "online", "disabled"]
    project: str = "cotcost"
    entity: str | None = None
    directory: str = "."

    __pydantic_config__: ClassVar[dict] = _STRICT


@dataclass(frozen=True)
class CellConfig:
    """Everything about one cell.

    The fields named in ``DECIDING_KEYS`` decide its result and make up its name; the others
    say where and how it runs.  ``task`` holds ``name``, ``_target_`` and the task's parameters.
    """

    task: dict[str, Any]
    model: ModelConfig
    recipe: Recipe
    data: DataConfig
    logger: LoggerConfig
    seed: int = 0
    experiment_name: str | None = "manual"
    results_dir: str = "results"
    runs_dir: str = "runs"
    data_dir: str = "data"
    device: str = "auto"
    compile: Any = "auto"
    micro_batch_size: int | None = None
    threads: int = 1
    evaluation_memory_mb: Any = "auto"
    checkpoint_seconds: float = 60
    time_limit_seconds: float | None = None
    retry_failed: bool = True
    progress: bool = True
    under_sweep: bool = False

    __pydantic_config__: ClassVar[dict] = _STRICT

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**63:
            raise UserError(f"seed={self.seed}: must be in [0, 2^63)")
        if self.compile not in ("auto", "graphs") and not isinstance(self.compile, bool):
            raise UserError(f"compile={self.compile}: must be auto, true, false or graphs")
        if self.micro_batch_size is not None and self.micro_batch_size < 1:
            raise UserError(f"micro_batch_size={self.micro_batch_size}: must be at least 1 or null")
        if self.micro_batch_size is not None and self.compile == "graphs":
            # A replay would write the next part's gradients over the sum.
            raise UserError("micro_batch_size: not together with compile=graphs")
        require_memory(self.evaluation_memory_mb)
        for key in ("threads", "checkpoint_seconds"):
            if not getattr(self, key) > 0:
                raise UserError(f"{key}={getattr(self, key)}: must be greater than 0")
        if self.time_limit_seconds is not None and not self.time_limit_seconds > 0:
            raise UserError(f"time_limit_seconds={self.time_limit_seconds}: must be greater than 0")
        require_plain_name("experiment_name", self.experiment_name)


def require_memory(value: Any) -> None:
    """Refuse an ``evaluation_memory_mb`` that is neither auto nor a number greater than 0."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value != "auto" and not (number and 0 < value < math.inf):
        raise UserError(
            f"evaluation_memory_mb={value}: must be auto or a number of megabytes greater than 0"
        )


def require_plain_name(key: str, value: str | None) -> None:
    """Refuse a name that would leave its folder; null is allowed."""
    if value is None:
        return
    if not value or value.startswith(".") or any(mark in value for mark in "/\\\0"):
        raise UserError(f"{key}={value!r}: must be a plain folder name")


@functools.cache
def _adapter() -> TypeAdapter[CellConfig]:
    from pydantic import TypeAdapter

    return TypeAdapter(CellConfig)


def validate_cell(plain: Mapping[str, Any]) -> CellConfig:
    """Return the typed configuration of a cell, or raise `UserError` naming key and remedy."""
    from pydantic import ValidationError

    values = dict(plain)
    seeds = values.pop("seeds", None)
    if seeds is not None:
        raise UserError(
            f"seeds={seeds}: only for python train.py without -m; "
            "with -m write seed=0,1,2, in an experiment seed: [0, 1, 2]"
        )
    try:
        return _adapter().validate_json(json.dumps(values))
    except TypeError as error:
        raise UserError(f"configuration: {error}") from None
    except ValidationError as error:
        raise UserError("; ".join(_explain(item) for item in error.errors())) from None


def parse_seeds(value: Any) -> list[int]:
    """Return the seeds that ``seeds`` lists: [0, 1, 2], "0,1,2" or one number."""
    words = value.split(",") if isinstance(value, str) else value
    words = words if isinstance(words, list) else [words]
    numbers: list[Any] = [
        int(w) if isinstance(w, str) and w.strip().isdecimal() else w for w in words
    ]
    right = [type(n) is int and 0 <= n < 2**63 for n in numbers]
    if not numbers or not all(right) or len(set(numbers)) < len(numbers):
        raise UserError(f"seeds={value}: must be different whole numbers from 0, such as [0,1,2]")
    return numbers


def _explain(item: Any) -> str:
    key = ".".join(str(part) for part in item["loc"])
    if item["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"unknown key {key}"
    if item["type"] in ("missing", "missing_argument"):
        return f"missing key {key}"
    message = item["msg"][0].lower() + item["msg"][1:]
    return f"{key}={item['input']!r}: {message}"
