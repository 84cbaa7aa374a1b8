"""Hybrids: ``model.mixers`` names a mixer a layer, and the layers take them in turn."""

from __future__ import annotations

import copy
import functools
from typing import Any

from hydra.core.global_hydra import GlobalHydra

from common import UserError, did_you_mean
from config.compose import compose_plain, config_folders, config_search_path


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
    with config_search_path():
        beside = tuple(config_folders("model"))
        searched = GlobalHydra.instance().config_loader().get_search_path()
        found = _model(mixer, f"{searched} {beside}").get("mixer")
    if not isinstance(found, dict):
        raise UserError(f"model.mixers: model {mixer} has no mixer of its own to take")
    return copy.deepcopy(found)


@functools.lru_cache(maxsize=256)
def _model(name: str, searched: str) -> dict[str, Any]:
    """Return the model NAME as Hydra composes it; ``searched`` says where, for the cache."""
    known = {path.stem for folder in config_folders("model") for path in folder.glob("*.yaml")}
    known |= set(GlobalHydra.instance().config_loader().get_group_options("model"))
    if name not in known:
        there = ", ".join(sorted(known)) + did_you_mean(name, known)
        raise UserError(f"model.mixers: no model named {name!r}: there are {there}")
    return compose_plain("train", [f"model={name}"])["model"]
