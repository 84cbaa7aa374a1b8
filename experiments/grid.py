"""From an experiment's YAML to its cells; used by launcher, status and plots."""

import copy
import dataclasses
import functools
import itertools
import json
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.errors import HydraException, MissingConfigException
from omegaconf import OmegaConf
from pydantic import Field

from common import (
    CONF_DIR,
    STRICT,
    UserError,
    checked,
    compose_plain,
    did_you_mean,
    plain,
    suggest_key,
)
from experiments.config import CellConfig, cell_from, deciding_settings, require_own_name
from experiments.names import cell_name, cell_settings
from experiments.run_folder import Run
from experiments.table import identity, other_settings

NOT_EMPTY = Field(min_length=1)
BASELINE = "standard"  # what every other model is compared with
GROUPS = ("task", "model", "recipe", "data", "measure", "logger", "machine")


@dataclass(frozen=True)
class Experiment:
    """conf/experiment/NAME.yaml. `base`: Hydra overrides of all cells; `grid`: a list of products,
    each a mapping from a key to its values; `figures`: names in `plots.redraw`; `facets`: the
    keys of their `rows` and `columns`, of a heatmap's `x` and `y`, and a filter `only`."""

    name: str
    description: str
    grid: Annotated[list[dict[str, Annotated[list[Any], NOT_EMPTY]]], NOT_EMPTY]
    base: list[str] = field(default_factory=list)
    strategy: Literal["grid", "frontier"] = "grid"
    figures: list[str] = field(default_factory=list)
    facets: dict[str, str | list[str] | dict[str, Any]] = field(default_factory=dict)

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Cell:
    """A cell of a grid, and the overrides that compose it."""

    config: CellConfig
    overrides: tuple[str, ...]

    @functools.cached_property
    def name(self) -> str:
        return cell_name(self.config)

    @functools.cached_property
    def run(self) -> Run:
        return Run.of(self.config)

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        return deciding_settings(self.config)

    @functools.cached_property
    def identity(self) -> dict[str, Any]:
        """The standard columns of its row."""
        return identity(self.settings)

    @functools.cached_property
    def columns(self) -> dict[str, Any]:
        """Every setting, by the name of its column."""
        return {**other_settings(self.settings), **self.identity, "cell": self.name}

    @functools.cached_property
    def group(self) -> str:
        """A key shared by cells that differ only in D and seed."""
        settings = cell_settings(self.config)
        settings["model"] = {**settings["model"], "dim": None}
        return json.dumps({**settings, "seed": None}, sort_keys=True)

    @property
    def record(self) -> dict[str, Any] | None:
        """The evaluation's record; None if it has not run."""
        return self.run.record(self.name)


def load_experiment(
    name: str, config_dir: str | Path | None = None, folder: Path | None = None
) -> Experiment:
    """The experiment conf/experiment/NAME.yaml, here or in `config_dir`. An unknown name
    with a table in `folder`, as after `train.py -m`, gets the default figures; else UserError."""
    try:
        content = compose_plain("sweep", [f"experiment={name}"], config_dir)["experiment"]
    except MissingConfigException as error:
        if error.missing_cfg_file != f"experiment/{name}":
            raise  # named in the YAML's defaults
        if folder is not None and (folder / "results.csv").exists():
            return Experiment(name, "", [])
        known = known_experiments()
        near = did_you_mean(name, known)
        table = f", no {folder / 'results.csv'}" if folder else ""
        said = f"experiment={name}: unknown{table}; known: {', '.join(known)}{near}"
        raise UserError(said) from None
    return experiment_from(name, content)


def known_experiments() -> list[str]:
    return sorted(path.stem for path in (CONF_DIR / "experiment").glob("*.yaml"))


def experiment_from(name: str, content: Mapping[str, Any]) -> Experiment:
    """The experiment of a YAML's content; UserError for a wrong key."""
    return checked(Experiment, {"name": name, **content}, f"experiment={name}: ")


def with_model(experiment: Experiment, model: str) -> Experiment:
    """The experiment with only `model` and standard attention, without mixers' own settings."""
    models = {"model": list(dict.fromkeys([BASELINE, model]))}
    parts = [{key: v for key, v in part.items() if ".mixer." not in key} | models
             for part in experiment.grid]  # fmt: skip
    return dataclasses.replace(experiment, grid=parts)


def cells(experiment: Experiment, overrides: Sequence[str] = ()) -> list[Cell]:
    """The distinct cells in the grid's order, with `overrides` added to each."""
    found: dict[str, Cell] = {}
    for product in experiment.grid:
        for values in itertools.product(*product.values()):
            words = list(map(as_override, product, values))
            cell = cell_of([*experiment.base, *words, *overrides])
            found.setdefault(cell.name, cell)
    return list(found.values())


def cell_of(words: Sequence[str]) -> Cell:
    """The cell composed from conf/train.yaml and overrides; the last value of a key counts.
    Composing takes 0.1 to 0.2 s, so each model and each combination of other groups is composed
    once; other values are set afterwards."""
    last: dict[str, str] = {}
    for word in words:
        key = word.partition("=")[0]
        last.pop(key, None)  # the order of different keys counts, too
        last[key] = word
    choices = tuple(word for key, word in last.items() if key in GROUPS)
    others = tuple(word for key, word in last.items() if key not in GROUPS)
    model = _model(last["model"]) if "model" in last else {}
    composed = _composed(tuple(word for word in choices if not model or word != last["model"]))
    settings = copy.deepcopy(composed | model)
    if "model" in last:
        require_own_name(last["model"].partition("=")[2], settings["model"])
    for word in others:
        _set(settings, word)
    return Cell(cell_from(plain(OmegaConf.create(settings))), (*choices, *others))


def matches(point: Mapping[str, Any], pattern: Mapping[str, Any]) -> bool:
    """Whether `point` has each value of `pattern`, a value or a list of values."""
    return all(
        point.get(key) == wanted or (isinstance(wanted, list) and point.get(key) in wanted)
        for key, wanted in pattern.items()
    )


def as_override(key: str, value: Any) -> str:
    """A value of a grid as a Hydra override; measure.task takes any key of a task."""
    new = key.startswith("measure.task.") and key != "measure.task.size"
    return f"{'++' * new}{key}={quoted(value) if '.' in key else value}"


def quoted(value: Any) -> str:
    """`value` as Hydra's override grammar writes it."""
    if isinstance(value, str):
        return QuotedString(value, Quote.single).with_quotes()
    if isinstance(value, list):
        return f"[{', '.join(map(quoted, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {quoted(found)}' for key, found in value.items())}}}"
    return json.dumps(value)


_composed = functools.cache(functools.partial(compose_plain, "train", resolve=False))


@functools.cache
def _model(choice: str) -> dict[str, Any]:
    """The settings of `model=NAME` alone; {} if it is unknown or nested."""
    try:
        # Hydra wants `_self_` among the defaults of what it composes alone; a model needs none.
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            found = compose_plain(choice.replace("=", "/"), resolve=False)
    except MissingConfigException:
        return {}
    return found if found.keys() == {"model"} and "name" in found["model"] else {}


def _set(settings: dict[str, Any], word: str) -> None:
    key = word.partition("=")[0]
    *path, last = key.lstrip("+").split(".")
    node: Any = settings
    for part in path:
        node = node.get(part) if isinstance(node, dict) else None
    if not isinstance(node, dict) or (last not in node and not key.startswith("+")):
        near = did_you_mean(last, node, key.removesuffix(last)) if isinstance(node, dict) else ""
        near = suggest_key(key) or near
        raise UserError(f"override {word!r}: unknown key{near}")
    if last in node and re.match(r"\+[^+]", key):
        raise UserError(f"override {word!r}: {last} exists; write it without +")
    try:
        value = copy.deepcopy(parsed(word.partition("=")[2]))
    except UserError as error:
        raise UserError(f"override {word!r}: {error}") from None
    merges = isinstance(value, dict) and isinstance(node.get(last), dict)  # as in Hydra
    node[last] = plain(OmegaConf.merge(node[last], value), resolve=False) if merges else value


@functools.cache
def parsed(value: str) -> Any:
    """The value as Hydra's grammar reads it, since workers are given the same words."""
    try:
        override = OverridesParser.create().parse_override(f"value={value}")
    except HydraException as error:
        raise UserError(f"{value!r}: {str(error).splitlines()[0]}") from None
    if override.is_sweep_override():
        raise UserError(f"{value!r}: expected one value, not several")
    return plain(OmegaConf.create({"value": override.value()}), resolve=False)["value"]
