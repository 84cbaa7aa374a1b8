"""The columns of a results table that say which cell a row is.

Some settings have a column in every table (`STANDARD`); of the others, those that vary in an
experiment have one, under their dotted key.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from config.build import build_model, measured_settings
from config.identity import RESULTS_VERSION, cell_name, digests, weights_name
from config.schema import CellConfig, as_plain
from tasks.by_name import build_task

IDENTITY = ["task", "size", "format", "model", "layers", "heads", "dim", "seed", "recipe"]

_SECTIONS = ("task", "model", "recipe", "data", "measure", "sources")
# What a standard column says already.
_COVERED = {
    "task.name", "task._target_", "model.name", "model.num_layers", "model.num_heads", "model.dim",
    "recipe.name", "measure.task.size", "measure.task.format",
}  # fmt: skip
# A section's settings are compared among rows of one name: two tasks differ in all of theirs.
_OWNERS = {"task": "task", "model": "model", "recipe": "recipe"}


def described(config: CellConfig) -> dict[str, Any]:
    """Return the standard columns; ``size`` and ``format`` are those of the measured task."""
    model: Any = config.model
    if config.model.construct is not None:
        built = build_model(config.model, build_task(config.task), 0.0)
        layers, dim = len(built.blocks), built.dim
        heads = built.blocks[0].mixer.num_heads if layers else 0
    else:
        layers, heads, dim = model.num_layers, model.num_heads, model.dim
    measured = measured_settings(config)
    return {
        "task": config.task["name"],
        "size": measured["size"],
        "format": measured.get("format", "cot"),
        "model": model.name,
        "layers": layers,
        "heads": heads,
        "dim": dim,
        "seed": config.seed,
        "recipe": config.recipe.name if config.model.construct is None else "constructed",
    }


def resolved(config: CellConfig) -> dict[str, Any]:
    """Return the whole configuration as it is kept beside a result, with names and digests."""
    names = {"cell": cell_name(config), "weights": weights_name(config)}
    kept = {**as_plain(config), **names, "results_version": RESULTS_VERSION}
    sources = digests(config)
    return {**kept, "sources": sources} if sources else kept


def settings_of(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without a standard column, under dotted keys.

    ``plain`` is what `resolved` returns, or what a file of it holds.  A file given by the user is
    told by its digest, not by its path.
    """
    found = flat({section: plain.get(section) for section in _SECTIONS})
    found = {key: value for key, value in found.items() if key not in _COVERED}
    return {k: v for k, v in found.items() if f"sources.{k}" not in found and v is not None}


def flat(settings: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested settings under dotted keys, such as ``model.mixer.block_size``."""
    if not isinstance(settings, Mapping):
        return {prefix: settings}
    found: dict[str, Any] = {}
    for key, value in settings.items():
        found |= flat(value, f"{prefix}.{key}" if prefix else str(key))
    return found


def varying(rows: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> list[str]:
    """Return the keys of other settings that vary; a row is (standard columns, `settings_of`).

    A setting of a task, model or recipe varies when two rows of one name differ in it.
    ``task.size`` and ``task.format`` are those trained on; where they are also those measured in
    every row, the standard columns say them.
    """
    found = []
    for key in _keys(settings for _, settings in rows):
        owner = _OWNERS.get(key.partition(".")[0])
        values: dict[str, set[str]] = {}
        for standard, settings in rows:
            group = str(standard.get(owner)) if owner else ""
            values.setdefault(group, set()).add(_text(settings.get(key)))
        if any(len(distinct) > 1 for distinct in values.values()) and not _said(key, rows):
            found.append(key)
    return found


def _said(key: str, rows: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> bool:
    column = {"task.size": "size", "task.format": "format"}.get(key)
    return column is not None and all(
        str(settings.get(key, "cot")) == str(standard.get(column)) for standard, settings in rows
    )


def _keys(settings: Iterable[Mapping[str, Any]]) -> list[str]:
    found: dict[str, None] = {}
    for one in settings:
        found |= dict.fromkeys(one)
    return sorted(found)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
