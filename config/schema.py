"""What a configuration may hold: types, ranges, unknown keys.

Hydra composes YAML; this module decides whether the result is a cell.  Validation is a single
call, so that launcher, sweep, evaluation and plots refuse the same things with the same words.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from common import UserError, explain
from config.mixers import with_settings
from training.bounds import bounded
from training.machine import Machine
from training.recipe import Recipe

STRICT = ConfigDict(extra="forbid", strict=True)
Seed = Annotated[int, bounded(0, 2**63 - 1, "seeds have 63 bits")]
Count = Annotated[int, bounded(1, 10**9, "a data set is held in memory")]
Width = Annotated[int, bounded(1, 2**16, "weights grow with its square")]
Layers = Annotated[int, bounded(1, 1000, "each is trained")]


@dataclass(frozen=True)
class ModelConfig:
    """The `model` group: a transformer to train, or weights that nobody trains.

    ``mixer`` holds ``_target_`` and that class's own parameters, ``mixers`` several such, which the
    layers take in turn; the sizes are D (``dim``), M (``num_layers``) and H (``num_heads``).
    ``construct`` holds the ``_target_`` of a function that returns a finished model for a task, and
    its parameters; sizes are then the function's.
    """

    name: str
    dim: Width | None = None
    num_layers: Layers | None = None
    num_heads: Width | None = None
    mixer: dict[str, Any] | None = None
    mixers: list[dict[str, Any]] | None = None
    construct: dict[str, Any] | None = None
    position: Literal["sinusoidal", "rope", "none"] = "sinusoidal"

    __pydantic_config__ = STRICT

    def __post_init__(self) -> None:
        if [self.mixer, self.mixers, self.construct].count(None) != 2:
            raise UserError(
                f"model {self.name}: give model.mixer, model.mixers or model.construct, one of them"
            )
        if self.construct is not None:
            return
        for key in ("dim", "num_layers", "num_heads"):
            if getattr(self, key) is None:
                raise UserError(f"model.{key}=null: must be a whole number of at least 1")
        assert self.dim is not None and self.num_heads is not None and self.num_layers is not None
        if self.mixers is not None and not 1 <= len(self.mixers) <= self.num_layers:
            raise UserError(
                f"model.mixers: {len(self.mixers)} mixers; "
                f"must be 1 to model.num_layers={self.num_layers}, which take them in turn"
            )
        if self.dim % self.num_heads:
            raise UserError(
                f"model.dim={self.dim}: must be divisible by model.num_heads={self.num_heads}"
            )
        if self.dim % 2:
            raise UserError(f"model.dim={self.dim}: must be even (sine and cosine positions)")


@dataclass(frozen=True)
class DataConfig:
    """The `data` group: numbers of sequences, the data seed, and files to use instead.

    Test prompts are kept out of the training set, so ``test`` and ``file`` decide it too.
    """

    train: Count
    validation: Count
    test: Count
    seed: Seed = 0
    file: str | None = None
    train_file: str | None = None

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class MeasureConfig:
    """The `measure` group: of which sequences the weights' accuracy is measured.

    ``task`` holds the task's settings that differ from those trained on (null: as trained);
    ``split`` one of the data's sets; ``file`` sequences instead of a split; ``count`` how many.
    """

    task: dict[str, Any] = field(default_factory=dict)
    split: Literal["test", "validation", "train"] = "test"
    file: str | None = None
    count: Count | None = None

    __pydantic_config__ = STRICT

    def __post_init__(self) -> None:
        fixed = sorted({"_target_", "name"} & self.task.keys())
        if fixed:
            raise UserError(f"measure.task.{fixed[0]}: weights are measured on their own task")
        if self.file is not None and (self.count is not None or self.split != "test"):
            raise UserError("measure.file: all of a file is measured, without split and count")


@dataclass(frozen=True)
class LoggerConfig:
    """The `logger` group (W&B)."""

    mode: Literal["offline", "online", "disabled"]
    project: str = "cotcost"
    entity: str | None = None
    directory: str = "."

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class CellConfig:
    """Everything about one cell: weights, a measurement of them, and how both come about.

    ``task`` holds ``name``, ``_target_``, ``size`` and what else the task takes.
    `config.identity` says what decides the weights and what the measurement; the rest says where
    and how the cell runs.
    """

    task: dict[str, Any]
    model: ModelConfig
    recipe: Recipe
    data: DataConfig
    logger: LoggerConfig
    machine: Machine = field(default_factory=Machine)
    measure: MeasureConfig = field(default_factory=MeasureConfig)
    seed: Seed = 0
    experiment_name: str | None = "manual"
    results_dir: str = "results"
    runs_dir: str = "runs"
    data_dir: str = "data"
    force: bool = False
    retry_failed: bool = True
    progress: bool = True
    under_sweep: bool = False

    __pydantic_config__ = STRICT

    def __post_init__(self) -> None:
        if "size" not in self.task:
            raise UserError("missing key task.size: write size: N into the task's YAML")
        require_plain_name("experiment_name", self.experiment_name)
        for key in ("results_dir", "runs_dir", "data_dir"):
            require_folder(key, getattr(self, key))
        self._require_sequences_to_measure()

    def _require_sequences_to_measure(self) -> None:
        if self.model.construct is not None and self.measure.split != "test":
            raise UserError(
                f"measure.split={self.measure.split}: nothing is drawn to train constructed "
                "weights, so that set is empty; leave measure.split=test"
            )
        changes = self.measure.task.items()
        others = [k for k, value in changes if value is not None and self.task.get(k) != value]
        if others and self.measure.split != "test":
            raise UserError(
                f"measure.split={self.measure.split}: was drawn for the task trained on; with "
                f"measure.task.{others[0]} new sequences are drawn, so leave measure.split=test"
            )


CALL_KEYS = ("config", "trust")  # of train.py's call, not of a cell
MACHINE_KEYS = tuple(item.name for item in dataclasses.fields(Machine))


def require_plain_name(key: str, value: str | None) -> None:
    """Raise `UserError` for a name that would leave its folder or break a line; null is allowed."""
    if value is None:
        return
    bad = not value.isprintable() or any(mark in value for mark in "/\\")
    bad = bad or len(value.encode(errors="replace")) > 200  # bytes: file systems count them
    if not value or value.startswith(".") or bad:
        raise UserError(f"{key}={value[:60]!r}: must be a plain folder name")


def require_folder(key: str, value: str) -> None:
    """Raise `UserError` for what is no path of a folder, or would break a line."""
    if not value.strip() or not value.isprintable():
        raise UserError(f"{key}={value!r}: must be a folder's path")


def validate_cell(plain: Mapping[str, Any]) -> CellConfig:
    """Return the typed configuration of a cell; `UserError` names the key and the remedy.

    The machine's settings stand beside the cell's own in ``plain``, as on the command line.
    """
    values = {key: value for key, value in plain.items() if key not in (*CALL_KEYS, *MACHINE_KEYS)}
    values["model"] = with_settings(values.get("model"))
    values["task"] = _with_name(values.get("task"))
    values["machine"] = {key: plain[key] for key in MACHINE_KEYS if key in plain}
    seeds = values.pop("seeds", None)
    if seeds is not None:
        raise UserError(
            f"seeds={seeds}: only for python train.py without -m; "
            "with -m write seed=0,1,2, in an experiment seed: [0, 1, 2]"
        )
    try:
        return _adapter(CellConfig).validate_json(json.dumps(values))
    except TypeError as error:
        raise UserError(f"configuration: {error}") from None
    except ValidationError as error:
        raise UserError("; ".join(map(explain, error.errors()))) from None


def _with_name(task: Any) -> Any:
    """Return a task's settings with a ``name``: its class's, in lower case, where none is given."""
    if not isinstance(task, Mapping) or "name" in task:
        return task
    return {"name": str(task.get("_target_")).rpartition(".")[2].lower(), **task}


def as_plain(config: CellConfig) -> dict[str, Any]:
    """Return ``config`` as plain data, such as `validate_cell` takes."""
    plain = section_as_plain(config)
    return plain | plain.pop("machine")


def section_as_plain(section: Any) -> dict[str, Any]:
    """Return a section of a configuration as plain data, a copy.

    A sweep asks for it many times a cell, and pydantic is faster than `dataclasses.asdict`.
    """
    return _adapter(section.__class__).dump_python(section)


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


@functools.cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
