"""Telling cells apart that differ in something the results table has no column for.

A grid may vary any key, e.g. ``model.mixer.block_size`` or ``task.order``.  Cells that then agree
in every column would be taken for one; here the differing keys are written into ``recipe`` (for
model, recipe and data) or ``format`` (for the task), so that each gets its own row or column.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from plots.cells import KEYS


def tell_apart(
    table: pd.DataFrame, plan: pd.DataFrame, experiment: Any
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return table and plan in which no two planned cells agree in all keys and the seed."""
    identity = [*KEYS, "seed"]
    if not hasattr(experiment, "grid") or not plan.duplicated(identity).any():
        return table, plan
    from config.grid import cells
    from config.identity import deciding

    settings = {cell.name: flat(deciding(cell.config)) for cell in cells(experiment)}
    varied: list[str] = []
    for _, part in plan.groupby(identity):
        seen = [settings[cell] for cell in part["cell"]]
        varied += [key for key in seen[0] if key not in varied and _differs(key, seen)]
    suffixes = {name: _suffixes(values, varied) for name, values in settings.items()}
    return _renamed(table, suffixes), _renamed(plan, suffixes)


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings under dotted keys."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        name = f"{prefix}{key}"
        found |= flat(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return found


def _differs(key: str, seen: list[dict[str, Any]]) -> bool:
    return len({repr(settings.get(key)) for settings in seen}) > 1


def _suffixes(settings: dict[str, Any], varied: list[str]) -> dict[str, str]:
    """Return what to add to ``format`` and to ``recipe`` of a cell with these settings."""
    said: dict[str, str] = {"format": "", "recipe": ""}
    for key in varied:
        if key in settings:
            column = "format" if key.startswith("task.") else "recipe"
            said[column] += f", {key.rpartition('.')[2]}={settings[key]}"
    return said


def _renamed(frame: pd.DataFrame, suffixes: dict[str, dict[str, str]]) -> pd.DataFrame:
    frame = frame.copy()
    defaults = {"format": "cot", "recipe": ""}
    for column, default in defaults.items():
        values = frame[column].fillna(default) if column in frame else default
        added = [suffixes.get(cell, {}).get(column, "") for cell in frame["cell"]]
        frame[column] = pd.Series(values, index=frame.index).astype(str) + added
    return frame
