"""The configuration of one cell: composed by Hydra, checked by pydantic.

A cell is one training run and one evaluation of it: task, model, recipe, data, seed and what is
evaluated. All other settings say where and how it runs, and are not in its name.
"""

import dataclasses
import functools
import json
import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveFloat, PositiveInt
from pydantic.dataclasses import dataclass

from common import STRICT, UserError, checked, compose_plain
from evaluation.state_format import parse_format
from models.build import ModelConfig
from tasks.data import DataConfig, Seed
from tasks.task import Task, build_task
from training.device import Machine
from training.recipe import Recipe

# The sections that decide a result; the rest of a cell's configuration is local.
HASHED_SECTIONS = ("task", "model", "recipe", "data", "measure", "seed")
OUR_PACKAGES = ("tasks.", "models.")


@dataclass(frozen=True, config=STRICT)
class MeasureConfig:
    """How a trained model is evaluated; see conf/measure/plain.yaml."""

    task: dict[str, Any] = field(default_factory=dict)
    split: Literal["test", "validation", "train"] = "test"
    file: str | None = None
    count: PositiveInt | None = None
    state_format: str | None = None
    weight_format: str | None = None

    def __post_init__(self) -> None:
        for name in (self.state_format, self.weight_format):
            if name is not None:
                parse_format(name)
        if self.file is not None and (self.count is not None or self.split != "test"):
            raise UserError("a file of test sequences takes no split or count")
        if self.split != "test" and any(value is not None for value in self.task.values()):
            raise UserError(f"measure.split={self.split}: measure.task needs measure.split=test")


# Other values of WANDB_MODE.
WANDB_MODES = {"": "offline", "dryrun": "offline", "run": "online", "shared": "online"}


@dataclass(frozen=True, config=STRICT)
class LoggerConfig:
    """The `logger` group: the W&B mirror."""

    mode: Annotated[
        Literal["offline", "online", "disabled"],
        BeforeValidator(lambda mode: WANDB_MODES.get(str(mode), mode)),
    ] = "disabled"
    project: str = "cotcost"
    entity: str | None = None
    directory: str = "."


@dataclass(frozen=True, config=STRICT)
class CellConfig:
    """One cell; see conf/train.yaml for the keys."""

    task: dict[str, Any]
    model: ModelConfig
    recipe: Recipe
    data: DataConfig
    logger: LoggerConfig = field(default_factory=LoggerConfig)
    measure: MeasureConfig = field(default_factory=MeasureConfig)
    seed: Seed = 0
    machine: Machine = field(default_factory=Machine)
    enter: bool = True
    experiment_name: Annotated[str, Field(pattern=r"^[\w\-+][\w\-+. ]*$")] = "manual"
    results_dir: str = "outputs"
    runs_dir: str = "runs"
    data_dir: str = "data"
    force: bool = False
    progress: bool = True

    def __post_init__(self) -> None:
        for key in ("name", "size"):
            if key not in self.task:
                raise UserError(f"missing key task.{key}: add {key}: ... to the task's YAML")
        data = self.data
        sizes = {
            "train": data.train or data.train_file,
            "validation": data.validation,
            "test": data.test or data.file or self.measure.file,
        }
        for split, value in sizes.items():
            if not value:
                raise UserError(f"data.{split}=0: needs at least one sequence")


@dataclass(frozen=True, config=STRICT)
class SweepCall:
    """The command line of sweep.py; see conf/sweep.yaml."""

    only: dict[str, Any]
    overrides: list[str]
    strategy: Literal["grid", "frontier"]
    max_hours: PositiveFloat | None
    results_dir: str
    runs_dir: str
    data_dir: str
    dry_run: bool
    status: bool
    watch: bool
    retry_failed: bool
    plot: bool


@dataclass(frozen=True, config=STRICT)
class EvaluateCall:
    """evaluate.py's options other than those of `MeasureConfig`; see conf/evaluate.yaml."""

    run: str
    show: NonNegativeInt
    out: str | None
    data_dir: str | None
    trust: bool


MACHINE_KEYS = tuple(item.name for item in dataclasses.fields(Machine))


def cell_from(settings: Mapping[str, Any], config_dir: str | Path | None = None) -> CellConfig:
    """The cell of composed settings; UserError names what is wrong. Machine settings are at the top
    level, as on the command line. A name in `model.mixers` stands for that model's mixer, whose
    YAML may lie in `config_dir`."""
    others = ("cell", "trust", *MACHINE_KEYS)  # the first two are train.py's, not a cell's
    values = {key: value for key, value in settings.items() if key not in others}
    values["machine"] = {key: settings[key] for key in MACHINE_KEYS if key in settings}
    model: Any = values.get("model")
    if isinstance(model, dict) and isinstance(named := model.get("mixers"), list):
        mixers = [_mixer_of(own, config_dir) if isinstance(own, str) else own for own in named]
        values["model"] = {**model, "mixers": mixers}
    return checked(CellConfig, values)


@functools.cache
def _mixer_of(model: str, config_dir: str | Path | None) -> dict[str, Any]:
    settings = compose_plain("train", [f"model={model}"], config_dir)["model"]
    if settings.get("mixer") is None:
        raise UserError(f"model.mixers: {model} has no single mixer; list its mixers")
    return settings["mixer"]


def require_own_name(choice: str, model: Mapping[str, Any]) -> None:
    """Raise UserError if `model=choice` has the name of another model, e.g. of its defaults."""
    name = choice.rpartition("/")[2].removesuffix(".yaml")
    if model.get("name", name) != name:
        raise UserError(f"model={choice}: its YAML has name: {model['name']}; write name: {name}")


def call_from(kind: Any, settings: Mapping[str, Any]) -> Any:
    """The composed settings that are fields of `kind`, e.g. `SweepCall`."""
    names = [item.name for item in dataclasses.fields(kind)]
    return checked(kind, {name: settings[name] for name in names if name in settings})


def deciding_settings(config: CellConfig) -> dict[str, Any]:
    """The sections that decide the result, as plain data."""
    settings = dataclasses.asdict(config)
    return {key: settings[key] for key in HASHED_SECTIONS}


def measured_settings(task: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the measured task: `MeasureConfig.task` applied to the trained one. A smaller
    size keeps the trained one's token ids."""
    settings = {**task, **{key: value for key, value in changes.items() if value is not None}}
    size = settings["size"]
    if "capacity" in task and isinstance(size, int) and size < task["size"]:
        settings["capacity"] = task["capacity"] or task["size"]
    return settings


def measured_task(config: CellConfig, trained: Task) -> Task:
    """The measured task; UserError if its sequences do not fit the model."""
    settings = measured_settings(config.task, config.measure.task)
    if settings == config.task:
        return trained
    measured = build_task(settings)
    trained.require_room_for(measured)
    return measured


def require_trusted(settings: Mapping[str, Any], path: str, trust: bool) -> None:
    """Raise UserError if a file names code outside tasks/ and models/, unless trusted."""
    targets = re.findall(r'"_target_": "([^"]*)', json.dumps(settings))
    foreign = [target for target in targets if not target.startswith(OUR_PACKAGES)]
    if foreign and not trust:
        raise UserError(
            f"{path}: names {foreign[0]}, code from outside this project; to run it, add "
            "trust=true (in Python: trust=True)"
        )
