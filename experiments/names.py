"""Names of training runs and evaluations: hashes of the settings that affect them. `runs/<run>/`
holds one training run. A cell evaluated with the default settings has the name of its run."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from common import UserError, locate, sha256_of, sources
from experiments.config import OUR_PACKAGES, CellConfig, deciding_settings, measured_settings

# Increase this when a code change alters results, beyond rounding, under the same configuration.
RESULTS_VERSION = 2


def run_name(config: CellConfig) -> str:
    """12 hexadecimal digits that name the training run."""
    return _hash(training_settings(config))


def cell_name(config: CellConfig) -> str:
    """12 hexadecimal digits that name the evaluation."""
    return _hash(cell_settings(config))


def training_settings(config: CellConfig) -> dict[str, Any]:
    """What fixes the weights: task, model, recipe, data and seed. Files are identified by content,
    classes from outside the project by source."""
    settings = deciding_settings(config)
    del settings["measure"]
    model = {key: value for key, value in settings["model"].items() if value is not None}
    data = settings["data"]
    files = {key: sha256_of(data[key]) for key in ("file", "train_file") if data[key] is not None}
    settings |= {"model": model, "data": data | files}
    if config.recipe.epochs is not None:
        settings["steps_of_epochs"] = "whole batches"  # formerly sequences / batch_size
    sources = source_digests(config)
    return {**settings, "sources": sources} if sources else settings


def cell_settings(config: CellConfig) -> dict[str, Any]:
    """Settings that determine a row: those of training and of evaluation."""
    settings = training_settings(config)
    measure = _measure(config)
    return {**settings, "measure": measure} if measure else settings


def source_digests(config: CellConfig) -> dict[str, str]:
    """A digest of the source of each class or function from outside the project, and of the modules
    beside it that it imports."""
    model = config.model
    parts = (config.task, model.mixer, *(model.mixers or []))
    targets = {str(part["_target_"]) for part in parts if part and part.get("_target_")}
    found = {}
    for target in sorted(targets):
        if not target.startswith(OUR_PACKAGES):
            cls = locate(target, "_target_")
            try:
                own = sources(cls)
                found[target] = own.pop(cls.__module__)
            except (AttributeError, TypeError):
                raise UserError(f"_target_={target}: not a Python class or function") from None
            found |= own
    return found


def _hash(settings: Mapping[str, Any]) -> str:
    text = json.dumps([RESULTS_VERSION, settings], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _measure(config: CellConfig) -> dict[str, Any]:
    """The measurement's settings, omitted if equal to the training's."""
    measure, measured = config.measure, measured_settings(config.task, config.measure.task)
    whole = config.data.test if measure.split == "test" and not config.data.file else None
    found = {
        "task": {k: value for k, value in measured.items() if config.task.get(k) != value} or None,
        "split": None if measure.split == "test" else measure.split,
        "file": measure.file and sha256_of(measure.file),
        "count": None if measure.count == whole else measure.count,
        "state_format": measure.state_format,
        "weight_format": measure.weight_format,
    }
    return {key: value for key, value in found.items() if value is not None}


# Standard columns that are settings; two more, size and format, are as measured.
COLUMN_OF = {
    "task.name": "task", "model.name": "model", "model.num_layers": "layers",
    "model.num_heads": "heads", "model.dim": "dim", "recipe.name": "recipe",
    "recipe.precision": "precision", "seed": "seed",
}  # fmt: skip
_COVERED = {*COLUMN_OF, "task._target_", "measure.task.size", "measure.task.format"}


def identity(config: Mapping[str, Any]) -> dict[str, Any]:
    """The standard columns of a cell's deciding settings."""
    settings = flat(config)
    measured = measured_settings(config["task"], config.get("measure", {}).get("task", {}))
    columns = {column: settings[key] for key, column in COLUMN_OF.items()}
    return columns | {"size": measured["size"], "format": measured.get("format", "cot")}


def other_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without a standard column, under dotted keys."""
    return {k: v for k, v in flat(config).items() if k not in _COVERED and v is not None}


def flat(settings: Any, prefix: str = "") -> dict[str, Any]:
    """Nested settings under dotted keys, e.g. `model.mixer.block_size`."""
    if not isinstance(settings, Mapping):
        return {prefix: settings}
    found: dict[str, Any] = {}
    for key, value in settings.items():
        found |= flat(value, f"{prefix}.{key}" if prefix else str(key))
    return found


def varying_keys(configs: list[Mapping[str, Any]]) -> list[str]:
    """The dotted settings that vary among cells of one task, model or recipe, without `task.size`
    and `task.format` if every cell is measured as trained: the standard columns hold them."""
    rows = [(identity(config), other_settings(config)) for config in configs]
    found = []
    for key in sorted({key for _, settings in rows for key in settings}):
        section = key.partition(".")[0]
        owner = section if section in ("task", "model", "recipe") else ""
        values: dict[Any, set[str]] = {}
        for columns, settings in rows:
            text = json.dumps(settings.get(key), sort_keys=True)
            values.setdefault(columns.get(owner), set()).add(text)
        if any(len(group) > 1 for group in values.values()) and not (
            key in ("task.size", "task.format") and measured_as_trained(configs, key)
        ):
            found.append(key)
    return found


def measured_as_trained(configs: list[Mapping[str, Any]], key: str) -> bool:
    """Whether every cell is measured at the size or format (`key`) it trains at."""
    name = key.removeprefix("task.")
    trained = [{"format": "cot", **config["task"]}[name] for config in configs]
    return trained == [identity(config)[name] for config in configs]
