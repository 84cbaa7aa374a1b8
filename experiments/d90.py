"""D90, the required dimension: the smallest D at which a model answers 90 % of the prompts.

Near D90, seeds disagree (41, 99, 100 %), so a D passes if the *median* of its seeds
reaches 90 %. D90 lies in the bracket (next smaller D tried, D90]. A table is what
`results.csv` holds; only rows with `status` done count.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd

THRESHOLD = 0.9
SETTINGS = ("task", "size", "format", "model", "layers", "heads", "recipe", "precision")
# Costs of the architecture, the same for every seed.
COUNTED = ("max_len", "params", "state_bytes", "flops_linear_layers", "flops_total")


class Bracket(NamedTuple):
    """D90 lies in (`low`, `high`]; `dim` is the smallest D that passes, nan if none. `low` is 0 if
    no smaller D was measured, `high` infinite if none passed."""

    dim: float
    low: float
    high: float


def bracket(medians: Mapping[Any, float]) -> Bracket:
    """The bracket of D90, from the median accuracy at each D."""
    passing = [dim for dim, median in medians.items() if passes(median)]
    high = min(passing, default=math.inf)
    low = max((dim for dim in medians if dim < high), default=0)
    return Bracket(high if passing else math.nan, low, high)


def passes(accuracy: float) -> bool:
    return accuracy >= THRESHOLD - 1e-9


def settings_of(table: pd.DataFrame) -> list[str]:
    """The columns that make a group: all settings but D and the seed."""
    dotted = [name for name in map(str, table.columns) if "." in name]
    return [name for name in SETTINGS if name in table] + dotted


def finished(table: pd.DataFrame) -> pd.DataFrame:
    """The rows that are done."""
    return table[table["status"] == "done"]


def medians(table: pd.DataFrame) -> pd.DataFrame:
    """A row per group and D, in the table's order: `accuracy` and `chain_exact_match` are medians
    over `seeds`, `success` is the share that reach 90 %, `still_improving` whether any seed was,
    `chance_accuracy` the mean."""
    done = finished(table)
    done = done.assign(
        _passes=done["answer_accuracy"].map(passes).astype(float),
        _improving=done["still_improving"].eq(True),  # missing: no
    )
    grouped = done.groupby([*settings_of(done), "dim"], dropna=False, sort=False)
    return grouped.agg(
        accuracy=("answer_accuracy", "median"),
        chain_exact_match=("chain_exact_match", "median"),
        seeds=("seed", "nunique"),
        success=("_passes", "mean"),
        still_improving=("_improving", "any"),
        chance_accuracy=("chance_accuracy", "mean"),
        **{name: (name, "first") for name in COUNTED},
    ).reset_index()


def required(table: pd.DataFrame) -> pd.DataFrame:
    """D90 of every group, a row per group in the table's order.

    `d90` (nan if none passed) lies in the bracket `low`, `high`. Other columns are those of
    `medians` at D90, or at the largest D if none passed; but `still_improving` is that of `low`,
    None if that is 0.
    """
    frame, found = medians(table), []
    keys = settings_of(frame)
    for _, part in frame.groupby(keys, dropna=False, sort=False):
        by_dim = part.set_index("dim")
        d90, low, high = bracket(by_dim["accuracy"].to_dict())
        shown = by_dim.loc[low if math.isnan(d90) else d90].to_dict()
        improving = by_dim["still_improving"].get(low)
        found.append({**shown, "d90": d90, "low": low, "high": high, "still_improving": improving})
    columns = [*keys, "d90", "low", "high", "accuracy", "chain_exact_match", "seeds", "success"]
    columns += ["still_improving", "chance_accuracy", *COUNTED]
    return pd.DataFrame(found, columns=columns).astype(frame[keys].dtypes)
