"""One number for a model: its D90 over standard attention's, on all tasks of an experiment.

A D90 is known up to its bracket (`experiments.d90`). A task that is not passed counts as twice the
largest D tried. A model that has not run on every task has no score, so leaving out hard tasks does
not help.
"""

import math
from typing import NamedTuple

import numpy as np
import pandas as pd

from experiments.d90 import bracket, medians
from experiments.grid import BASELINE

PLACE = ["task", "format", "size"]
DRAWS = 10_000


class Score(NamedTuple):
    """The geometric mean over `tasks` of D90 over standard attention's. `low` to `high` is its 95 %
    interval when each D90 is drawn log-uniformly from its bracket."""

    value: float
    low: float
    high: float
    tasks: int


def scorable(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of models that ran, or failed to, on every task that standard attention ran."""
    ended = table[table["status"] != "unfinished"]
    tried = {name: set(map(tuple, rows[PLACE].values)) for name, rows in ended.groupby("model")}
    every = tried.get(BASELINE, set())
    return table[table["model"].isin([name for name in tried if every <= tried[name]])]


def places(table: pd.DataFrame) -> pd.DataFrame:
    """A row per model and task that standard attention ran, in the table's order: `model`, `PLACE`,
    `d90` (nan if none passed), `dim` (D90, or the largest D that ran), `accuracy` (the best
    median), and `low` and `high`, a closed bracket of D90."""
    found = medians(table)
    own = found[found["model"] == BASELINE].groupby(PLACE, sort=False)["dim"]
    rows = []
    for model in table["model"].unique():
        for place, tried in own:
            here = (found[PLACE] == list(place)).all(axis=1) & (found["model"] == model)
            by_dim = found[here].set_index("dim")["accuracy"]
            dim, low, high = bracket(by_dim.to_dict())
            ran = max(by_dim.index, default=math.nan)
            rows.append(
                {"model": model, **dict(zip(PLACE, place, strict=True)), "d90": dim}
                | {"dim": ran if math.isnan(dim) else dim, "accuracy": by_dim.max()}
                | {"low": low or (tried.min() / 2 if len(by_dim) else tried.max())}
                | {"high": high if math.isfinite(high) else 2 * tried.max()}
            )
    return pd.DataFrame(rows)


def score(found: pd.DataFrame, model: str) -> Score:
    """The score of a model among the rows of `places`."""
    mine, base = (found[found["model"] == name] for name in (model, BASELINE))
    if model == BASELINE:
        return Score(1.0, 1.0, 1.0, len(base))
    random = np.random.default_rng(0)

    def drawn(rows: pd.DataFrame) -> np.ndarray:
        return random.uniform(np.log(rows["low"]), np.log(rows["high"]), (DRAWS, len(rows)))

    low, high = np.quantile((drawn(mine) - drawn(base)).mean(1), [0.025, 0.975])
    value = np.log(mine["high"].to_numpy() / base["high"].to_numpy()).mean()
    return Score(float(np.exp(value)), float(np.exp(low)), float(np.exp(high)), len(base))
