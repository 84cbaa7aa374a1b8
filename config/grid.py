"""The one grid function: from an experiment's YAML to its cells.

Launcher, status and plots all ask here, so they cannot disagree about which cells there are.
"""

from __future__ import annotations

import functools
import itertools
import pickle
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from pydantic import TypeAdapter, ValidationError

from common import UserError, did_you_mean, explain
from config.columns import IDENTITY, described, resolved, settings_of, varying
from config.compose import compose_plain, config_dir_words, config_folders, config_search_path
from config.identity import cell_name, weights_name
from config.schema import CellConfig, require_plain_name, validate_cell

GROUPS = ("task", "model", "recipe", "data", "measure", "logger", "machine")


@dataclass(frozen=True)
class Experiment:
    """An experiment as its YAML states it.

    ``base`` are Hydra overrides common to all cells; ``grid`` is a list of products, each a
    mapping from an override's key to its values; ``exclude`` lists combinations to leave out;
    ``figures`` names modules of ``plots/``; ``facets`` says which settings are their rows, columns
    and axes; ``budget`` is printed under the pictures; ``confirm`` says whether a searched frontier
    is confirmed by further seeds and rates, or by seeds alone.
    """

    name: str
    description: str
    grid: list[dict[str, list[Any]]]
    base: list[str] = field(default_factory=list)
    exclude: list[dict[str, Any]] = field(default_factory=list)
    figures: list[str] = field(default_factory=list)
    facets: dict[str, Any] = field(default_factory=dict)
    budget: str = ""
    confirm: bool | Literal["seeds"] = True

    @property
    def command(self) -> str:
        """The command that runs it."""
        words = ["python", "sweep.py", *config_dir_words(), f"experiment={self.name}"]
        return shlex.join(words)


@dataclass(frozen=True)
class Cell:
    """One cell of a grid: its name, its typed configuration, the overrides that compose it."""

    name: str
    config: CellConfig
    overrides: tuple[str, ...]

    @functools.cached_property
    def weights(self) -> str:
        """The name of the weights that are measured."""
        return weights_name(self.config)

    @functools.cached_property
    def resolved(self) -> dict[str, Any]:
        """The whole configuration as it is kept beside the result."""
        return resolved(self.config)


def experiment_from(name: str, plain: Mapping[str, Any]) -> Experiment:
    """Return the experiment that ``plain`` (the YAML's content) states, or raise `UserError`."""
    require_plain_name("experiment", name)
    try:
        experiment = TypeAdapter(Experiment).validate_python({"name": name, **plain})
    except ValidationError as error:
        faults = "; ".join(map(_fault, error.errors()))
        raise UserError(f"experiment {name}: {faults}") from None
    unknown = sorted(set(plain) - set(Experiment.__dataclass_fields__))
    if unknown:
        meant = did_you_mean(unknown[0], Experiment.__dataclass_fields__)
        raise UserError(f"experiment {name}: unknown key {', '.join(unknown)}{meant}")
    if not experiment.grid:
        raise UserError(
            f"experiment {name}: its grid is empty; write a list of products, each a mapping from "
            "keys to lists of values"
        )
    empty = [key for product in experiment.grid for key, values in product.items() if not values]
    if empty:
        raise UserError(f"experiment {name}: grid: {empty[0]} has no value; write a list of some")
    return experiment


def load_experiment(name: str) -> Experiment:
    """Return the experiment ``conf/experiment/NAME.yaml``; unknown names list the known ones."""
    known = {path.stem for folder in config_folders("experiment") for path in folder.glob("*.yaml")}
    with config_search_path():
        if name not in known and not _searchable(name):
            meant = did_you_mean(name, known)
            raise UserError(
                f"experiment={name}: unknown; there are {', '.join(sorted(known))}{meant}"
            )
        return experiment_from(name, compose_plain("sweep", [f"experiment={name}"])["experiment"])


def _fault(finding: Any) -> str:
    if finding["type"] != "list_type":
        return explain(finding)
    key, given = finding["loc"][-1], finding["input"]
    plain = str(given) if str(given).isprintable() else repr(given)
    return f"{key}: {given!r}: must be a list; write {key}: [{plain}]"


def cells(experiment: Experiment, overrides: Sequence[str] = ()) -> list[Cell]:
    """Return the cells of ``experiment`` in the grid's order, ``overrides`` added to each.

    Hydra composes once per choice of groups; the values of the grid are then set in plain data,
    which takes microseconds instead of the tens of milliseconds of a composition.  A cell that
    occurs in two products is kept once.
    """
    found: dict[str, Cell] = {}
    for point in points(experiment):
        words = [*experiment.base, *(_override(key, value) for key, value in point.items())]
        try:
            cell = _cell([*words, *overrides])
        except UserError as error:
            raise UserError(f"experiment {experiment.name}: {error}") from None
        found.setdefault(cell.name, cell)
    return list(found.values())


def variant(cell: Cell, overrides: Sequence[str]) -> Cell:
    """Return ``cell`` with ``overrides`` set, such as another seed."""
    return _cell([*cell.overrides, *overrides])


def _cell(words: Sequence[str]) -> Cell:
    words = tuple(_last_of_each_key(words))
    config = validate_cell(_compose_fast(words))
    return Cell(cell_name(config), config, words)


def points(experiment: Experiment) -> Iterator[dict[str, Any]]:
    """Yield each combination of the grid's values that is not excluded."""
    for product in experiment.grid:
        for values in itertools.product(*product.values()):
            point = dict(zip(product, values, strict=True))
            if not any(matches(point, pattern) for pattern in experiment.exclude):
                yield point


def matches(point: Mapping[str, Any], pattern: Mapping[str, Any]) -> bool:
    """Tell whether ``point`` has each value of ``pattern`` (a value or a list of values)."""
    return bool(pattern) and all(
        point.get(key) in (value if isinstance(value, list) else [value])
        for key, value in pattern.items()
    )


def planned(
    experiment: Experiment, overrides: Sequence[str] = (), also: Iterable[str] = ()
) -> pd.DataFrame:
    """Return a row per cell: its name and every column that says which cell it is.

    ``also`` names settings that vary elsewhere, such as in a table that holds further cells.
    """
    rows = []
    for cell in cells(experiment, overrides):
        rows.append((described(cell.config) | {"cell": cell.name}, settings_of(cell.resolved)))
    keys = sorted({*varying(rows), *also})
    table = [standard | {key: settings.get(key) for key in keys} for standard, settings in rows]
    return pd.DataFrame(table, columns=[*IDENTITY, *keys, "cell"])


def _searchable(name: str) -> bool:
    loader = GlobalHydra.instance().config_loader()
    return name in loader.get_group_options("experiment")


def _compose_fast(words: tuple[str, ...]) -> dict[str, Any]:
    choices = tuple(word for word in words if _is_plain_choice(word))
    plain = pickle.loads(_compose_cached(choices))
    for word in words:
        if not _is_plain_choice(word):
            _set(plain, word)
    return plain


def _last_of_each_key(words: Sequence[str]) -> list[str]:
    """Keep the last override of every key; groups first, since they bring the keys."""
    last = {word.partition("=")[0]: word for word in words}
    return sorted(last.values(), key=lambda word: not _is_plain_choice(word))


def _is_plain_choice(word: str) -> bool:
    return word.partition("=")[0] in GROUPS


@functools.lru_cache(maxsize=1024)
def _compose_cached(choices: tuple[str, ...]) -> bytes:
    return pickle.dumps(compose_plain("train", choices))  # copied ten times as fast as by deepcopy


def _set(plain: dict[str, Any], word: str) -> None:
    key, separator, _ = word.partition("=")
    if not separator:
        raise UserError(f"override {word!r}: must be key=value")
    *path, last = key.lstrip("+").split(".")
    node: Any = plain
    for part in path:
        node = node.get(part) if isinstance(node, dict) else None
    known = isinstance(node, dict) and (last in node or path == ["measure", "task"])
    if not known and not (isinstance(node, dict) and key.startswith("+")):
        meant = did_you_mean(last, node, key.removesuffix(last)) if isinstance(node, dict) else ""
        raise UserError(f"override {word!r}: unknown key {key}{meant}")
    node[last] = _parse(word)


@functools.lru_cache(maxsize=65536)
def _parse(word: str) -> Any:
    override = OverridesParser.create().parse_override(word)
    if override.is_sweep_override():
        raise UserError(f"override {word!r}: a cell has one value; write lists in the grid")
    return override.value()


def _override(key: str, value: Any) -> str:
    """Return a value of the grid as an override; the task measured takes any key of a task."""
    new = key.startswith("measure.task.") and key != "measure.task.size"
    word = "null" if value is None else str(value)
    return f"{'++' * new}{key}={word.lower() if isinstance(value, bool) else word}"
