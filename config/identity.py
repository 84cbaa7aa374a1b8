"""The names of weights and of measurements: hashes of the settings that decide them.

A plain cell, weights measured as they were trained, has one name for both.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import inspect
import json
from pathlib import Path
from typing import Any

from common import UserError, file_digest
from config.build import measured_settings
from config.schema import CellConfig, section_as_plain
from instantiate import OUR_CLASSES, ROOT, locate

# Raise it when a change of the code changes results under an unchanged configuration, so that
# old and new rows cannot be taken for each other.
RESULTS_VERSION = 2


def weights_settings(config: CellConfig) -> dict[str, Any]:
    """Return what decides the weights, as plain JSON-able data.

    Trained ones: task, model, recipe, data and seed.  Constructed ones: task and model alone.
    Files enter by a digest of their content, classes from outside the project by one of their
    source: an edited file makes new weights, the same file at another path does not.
    """
    model = {k: v for k, v in section_as_plain(config.model).items() if v is not None}
    settings: dict[str, Any] = {"task": dict(config.task), "model": model}
    if config.model.construct is None:
        settings["recipe"] = section_as_plain(config.recipe)
        if config.recipe.epochs is not None:
            settings["steps_of_epochs"] = "whole batches"  # once their sequences / batch_size
        settings |= {"data": _data(config), "seed": config.seed}
    sources = {
        target: digest for target in _cell_targets(config) if (digest := source_digest(target))
    }
    return {**settings, "sources": sources} if sources else settings


def measurement_settings(config: CellConfig) -> dict[str, Any]:
    """Return what decides the cell's row: the weights' settings, and how they are measured.

    What is measured as it was trained needs no word.
    """
    settings = weights_settings(config)
    if config.model.construct is not None:
        settings["data"] = {key: _data(config)[key] for key in ("test", "seed", "file")}
    measure = _measure(config)
    return {**settings, "measure": measure} if measure else settings


def weights_name(config: CellConfig) -> str:
    """Return the 12 hexadecimal digits that name the weights."""
    return _name(weights_settings(config))


def cell_name(config: CellConfig) -> str:
    """Return the 12 hexadecimal digits that name the cell in every folder and table."""
    return _name(measurement_settings(config))


def digests(config: CellConfig) -> dict[str, str]:
    """Return the digests that enter the name of the cell: of files and of foreign sources."""
    found = dict(weights_settings(config).get("sources", {}))
    given = {"data.file": config.data.file, "data.train_file": config.data.train_file}
    given["measure.file"] = config.measure.file
    return found | {key: file_digest(path, f"{key}=") for key, path in given.items() if path}


def _name(settings: dict[str, Any]) -> str:
    text = json.dumps([RESULTS_VERSION, settings], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _data(config: CellConfig) -> dict[str, Any]:
    data = section_as_plain(config.data)
    for key in ("file", "train_file"):
        if data[key] is not None:
            data[key] = file_digest(data[key], f"data.{key}=")
    return data


def _measure(config: CellConfig) -> dict[str, Any]:
    """Return the settings of `measure` that make it another measurement than the plain one."""
    measured = measured_settings(config)
    task = {key: value for key, value in measured.items() if config.task.get(key) != value}
    found: dict[str, Any] = {"task": task} if task else {}
    measure = config.measure
    if measure.split != "test":
        found["split"] = measure.split
    if measure.file is not None:
        found["file"] = file_digest(measure.file, "measure.file=")
    whole = config.data.test if measure.split == "test" else None
    if measure.count not in (None, whole):
        found["count"] = measure.count
    return found


def _cell_targets(config: CellConfig) -> list[str]:
    model = config.model
    parts = (config.task, model.mixer, *(model.mixers or []), model.construct)
    return [str(part["_target_"]) for part in parts if part and part.get("_target_")]


@functools.lru_cache(maxsize=1024)
def source_digest(target: str) -> str | None:
    """Return a digest of the source of a class or function from outside the project; None inside.

    It is that of the module that ``target`` names and, where this only passes the class on, of the
    file that it is written in too, for which ``target`` is imported.  The project's own code
    counts by `RESULTS_VERSION`.
    """
    try:
        spec = importlib.util.find_spec(target.rpartition(".")[0])
    except Exception:  # it runs the packages above, which may be broken in any way
        return None  # the build says what is wrong with it
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        return None
    named = Path(spec.origin).resolve()
    if target.split(".")[0] in OUR_CLASSES and named.is_relative_to(ROOT):
        return None
    files = dict.fromkeys([named, _written_in(target) or named])
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]


def _written_in(target: str) -> Path | None:
    """Return the file that ``target`` is written in; None for the project's own, or for none."""
    try:
        path = Path(inspect.getfile(inspect.unwrap(locate(target, "_target_")))).resolve()
    except (UserError, TypeError, OSError, ValueError):
        return None  # again the build says what is wrong with it
    ours = any(path.is_relative_to(ROOT / room) for room in OUR_CLASSES)
    return path if path.is_file() and not ours else None
