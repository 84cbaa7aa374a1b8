"""Labels: which panel of a figure a cell belongs to, and where on its axes it stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from common import UserError, did_you_mean
from plots import style
from plots.aligned import KEYS
from plots.text import short_name

_COLUMN_SECTIONS = ("task", "data", "measure")


def panels_of(experiment: Any) -> dict[str, Any]:
    """Return the experiment's facets but the axes, for figures whose axes are their own."""
    facets = getattr(experiment, "facets", None) or {}
    return {name: facets[name] for name in ("columns", "rows") if name in facets}


def facets_of(given: Mapping[str, Any], known: list[str]) -> dict[str, list[str]]:
    """Return the facets with their defaults, each a list of settings that the table has."""
    found = {"columns": ["task"], "rows": ["model"], "x": ["dim"], "y": ["size"]}
    for name, value in given.items():
        found[name] = [str(key) for key in (value if isinstance(value, list) else [value])]
        for key in found[name]:
            if key not in known:
                raise UserError(
                    f"facets: {name}: {key} is no setting; there are {', '.join(known)}"
                    f"{did_you_mean(key, known)}"
                )
    return found


def labelled(
    cells: pd.DataFrame, others: list[str], facets: Mapping[str, list[str]]
) -> pd.DataFrame:
    """Add the labels ``column`` and ``row``, and ``x`` and ``y``, the values on the axes.

    A label names its task or model, then every setting that is needed to tell cells apart.
    """
    (x,), (y,) = facets["x"], facets["y"]
    beside = ["task", "model", "format", "layers", "heads", "recipe", "dim", "size"]
    varied = [key for key in beside if cells[key].nunique() > 1] + _needed(cells, others)
    varied = [key for key in varied if key not in (x, y)]
    columns = [*facets["columns"]]
    columns += [k for k in varied if k.split(".")[0] in _COLUMN_SECTIONS or k in ("format", "size")]
    columns = [key for key in dict.fromkeys(columns) if key not in facets["rows"]]
    rows = [*facets["rows"]]
    rows += [key for key in varied if key not in (*columns, *rows)]
    labels = {name: _label(cells, keys) for name, keys in (("column", columns), ("row", rows))}
    return cells.assign(**labels, x=_axis(cells[x]), y=_axis(cells[y]))


def usual(cells: pd.DataFrame) -> dict[str, int]:
    """Return the layers and heads that most models have, where they vary and no model has two.

    Labels leave them out; the footer says them once.
    """
    found = {}
    for key in ("layers", "heads"):
        values = cells.groupby("model")[key].agg(["first", "nunique"])
        most = values["first"].mode()[0]
        shared = int((values["first"] == most).sum())
        if values["nunique"].max() == 1 and len(values) / 2 < shared < len(values):
            found[key] = int(most)
    return found


def _needed(cells: pd.DataFrame, others: list[str]) -> list[str]:
    """Return the settings in which cells differ that agree in all keys of every table."""
    groups = cells.groupby(KEYS, sort=False)
    return [key for key in others if (groups[key].nunique() > 1).any()]


def _label(cells: pd.DataFrame, keys: list[str]) -> pd.Series:
    """Return the settings ``keys`` in words; different settings never have the same words."""
    left_out = usual(cells).items()
    points = list(cells[keys].itertuples(index=False, name=None))
    labels: dict[tuple, str] = {}
    for point in dict.fromkeys(points):
        told = [item for item in zip(keys, point, strict=True) if item not in left_out]
        words = [style.setting_label(key, value) for key, value in told]
        text = ", ".join(word for word in words if word)
        taken = text in labels.values()
        labels[point] = f"{text} {short_name(chr(0) + repr(point))[-5:]}" if taken else text
    return pd.Series([labels[point] for point in points], cells.index, dtype=object)


def _axis(values: pd.Series) -> pd.Series:
    numbers = pd.to_numeric(values, errors="coerce")
    if numbers.isna().any():
        return values
    return numbers.astype(int) if (numbers % 1 == 0).all() else numbers
