"""Give a results table and a plan the same columns, so that rows of both name the same cells."""

from __future__ import annotations

from typing import Any

import pandas as pd

KEYS = ["task", "format", "size", "layers", "heads", "recipe", "model", "dim"]
_DEFAULTS: dict[str, Any] = {"format": "cot", "recipe": "", "layers": 0, "heads": 0, "seed": 0}


def aligned(
    table: pd.DataFrame, plan: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """Return both with every column that names a cell, and the names of those that are not `KEYS`.

    A setting that one of the two does not have is filled in where the other tells it.
    """
    others = sorted({str(name) for frame in (table, plan) for name in frame if "." in str(name)})
    table, plan = _with_same_columns(_with_planned_settings(table, plan), plan)
    return _with_defaults(table, others), _with_defaults(plan, others), others


def _with_planned_settings(table: pd.DataFrame, plan: pd.DataFrame) -> pd.DataFrame:
    """Return ``table`` with the settings that vary in the plan alone, as far as that tells them.

    A table that is not complete has no column yet for what does not vary among its rows.
    """
    lacking = [str(name) for name in plan if "." in str(name) and name not in table]
    keys = [key for key in ("task", "size", "model", "layers", "heads", "dim") if key in plan]
    if not lacking or "cell" not in plan or not set(keys) <= set(table):
        return table
    found = {}
    for name in lacking:
        by_keys = plan.assign(**{name: plan[name].map(_as_text)}).groupby(keys)[name]
        values = by_keys.agg(["first", "nunique"])
        alike = values.loc[values["nunique"] == 1, "first"].reindex(
            pd.MultiIndex.from_frame(table[keys])
        )
        of_cell = table["cell"].map(plan.drop_duplicates("cell").set_index("cell")[name])
        found[name] = of_cell.astype(object).where(of_cell.notna(), alike.to_numpy())
    return table.assign(**found)


def _with_same_columns(*frames: pd.DataFrame) -> list[pd.DataFrame]:
    """Give each frame the columns of the other in which that one never varies.

    A table or a plan from elsewhere may not say what is the same everywhere.
    """
    found = []
    for frame, other in (frames, frames[::-1]):
        lacking = [c for c in other if c not in frame and (c in KEYS or "." in str(c))]
        one = [c for c in lacking if len(other) and other[c].nunique() == 1]
        constant = {str(c): other[c].iloc[0] for c in one}
        found.append(frame.assign(**constant))
    return found


def _with_defaults(frame: pd.DataFrame, others: list[str]) -> pd.DataFrame:
    frame = frame.copy()
    for column, value in _DEFAULTS.items():
        frame[column] = frame[column].fillna(value) if column in frame else value
    for column in ("size", "layers", "heads", "dim", "seed"):
        frame[column] = frame[column].astype(int)
    for column in others:
        values = frame[column].astype(object) if column in frame else ""
        frame[column] = pd.Series(values, frame.index, dtype=object).map(_as_text)
    return frame


def _as_text(value: Any) -> str:
    """Return a setting as the table holds it: empty where it does not exist.

    A whole number that pandas made 1.0, since others lack the setting, is 1 again.
    """
    text = "" if value is None or value != value else str(value)
    return text.removesuffix(".0") if text.removesuffix(".0").lstrip("-").isdecimal() else text


def plan_from_table(table: pd.DataFrame) -> pd.DataFrame:
    """Return the plan of an ad-hoc table: what it holds, no more."""
    others = [name for name in table if "." in str(name)]
    names = [name for name in [*KEYS, *others, "seed", "cell"] if name in table]
    return table[names].drop_duplicates(ignore_index=True)
