"""Hybrids: ``model.mixers`` names a mixer a layer, and the layers take them in turn."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import yaml

from config.compose import config_folders
from errors import UserError


def with_settings(model: Any) -> Any:
    """Return the `model` group, each name in ``mixers`` replaced by that model's ``mixer``.

    So a configuration keeps what it names, whatever becomes of the file.  Raises `UserError` for
    an unknown name, and for one of a model without a mixer of its own.
    """
    mixers = model.get("mixers") if isinstance(model, dict) else None
    if not isinstance(mixers, list):
        return model
    return model | {"mixers": [_settings(mixer) for mixer in mixers]}


def _settings(mixer: Any) -> dict[str, Any]:
    if isinstance(mixer, dict) and "_target_" in mixer:
        return mixer
    if not isinstance(mixer, str):
        raise UserError(
            f"model.mixers: {mixer!r} must be a model's name or a mixer's settings with _target_"
        )
    found = _read(mixer).get("mixer")
    if not isinstance(found, dict):
        raise UserError(f"model.mixers: model {mixer} has no mixer of its own to take")
    return found


def _read(name: str) -> dict[str, Any]:
    files = {path.stem: path for path in _files()}
    if name not in files:
        close = difflib.get_close_matches(name, files, 1)
        hint = f"; did you mean {close[0]}?" if close else ""
        known = ", ".join(sorted(files))
        raise UserError(f"model.mixers: no model named {name!r}: there are {known}{hint}")
    try:
        content = yaml.safe_load(files[name].read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"{files[name]}: {' '.join(str(error).split())}") from None
    return content if isinstance(content, dict) else {}


def _files() -> list[Path]:
    return [path for folder in config_folders("model") for path in sorted(folder.glob("*.yaml"))]
