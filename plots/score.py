"""Score a model: its D90 on each task relative to standard attention's, their mean, and its costs.

A D90 is known up to its bracket (`experiments.d90`). A task that is not passed counts as twice the
largest D tried. A model that has not run on every task has no score, so leaving out hard tasks does
not help. References are models of the same experiment in `results/`, each beside the standard
attention measured with it.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from experiments.config import CONF_DIR
from experiments.d90 import bracket, finished, medians
from experiments.grid import BASELINE
from experiments.table import read_table
from plots import d90_by_task, data, style

PLACE = ["task", "format", "size"]
DRAWS = 10_000
MAX_SHOWN = 5  # models in the figure of costs
MAX_NAMED = 3  # in the headline
COSTS = {"parameters": "params", "state": "state_bytes", "training time": "train_seconds"}
SPEED = "tokens/s"


class Score(NamedTuple):
    """The geometric mean over the tasks of D90 over standard attention's. `low` to `high` are
    the central 95 % if each D90 is drawn log-uniformly from its bracket."""

    score: float
    low: float
    high: float


def scorable(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of models that ran, or failed to, on every task that standard attention ran."""
    ended = table[table["status"] != "unfinished"]
    tried = {name: set(map(tuple, rows[PLACE].values)) for name, rows in ended.groupby("model")}
    every = tried.get(BASELINE, set())
    return table[table["model"].isin([name for name in tried if every <= tried[name]])]


def brackets(table: pd.DataFrame) -> pd.DataFrame:
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


def best_rates(done: pd.DataFrame) -> pd.DataFrame:
    """Finished rows, of several learning rates those of the best median at each D."""
    rate, keys = "recipe.learning_rate", ["model", *PLACE, "dim"]
    if rate not in done:
        return done
    median = done.groupby([*keys, rate], dropna=False)["answer_accuracy"].transform("median")
    best = median.groupby([done[key] for key in keys]).transform("max")
    return done[median == best].drop(columns=rate)


def score(found: pd.DataFrame, model: str) -> Score:
    """The score of a model among the rows of `brackets`."""
    mine, base = (found[found["model"] == name] for name in (model, BASELINE))
    if model == BASELINE:
        return Score(1.0, 1.0, 1.0)
    random = np.random.default_rng(0)

    def drawn(rows: pd.DataFrame) -> np.ndarray:
        return random.uniform(np.log(rows["low"]), np.log(rows["high"]), (DRAWS, len(rows)))

    low, high = np.quantile((drawn(mine) - drawn(base)).mean(1), [0.025, 0.975])
    value = np.log(mine["high"].to_numpy() / base["high"].to_numpy()).mean()
    return Score(*np.exp([value, low, high]).tolist())


def references(experiment: str) -> pd.DataFrame:
    """The published rows of an experiment that can be scored, possibly none."""
    return scorable(read_table(CONF_DIR.parent / "results" / experiment))


def with_references(table: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """Rows of the models to draw: standard attention, yours, then references."""
    table = best_rates(finished(table))
    rest = published[~published["model"].isin(table["model"])]
    both = data.in_order(pd.concat([table, rest], ignore_index=True) if len(rest) else table)
    known = set(published["model"])
    names = sorted(both["model"].unique(), key=lambda name: (name != BASELINE, name in known))
    return both[both["model"].isin(names[:MAX_SHOWN])]


def frame(table: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """A row per model, the lowest score first; `yours` marks those not published. Costs are
    geometric means over the tasks, without a D90 those of the largest D."""
    ran, known = set(table["model"]), {*published["model"], BASELINE}
    rows = _rows(table) + [row for row in _rows(published) if row["name"] not in ran]
    rows.sort(key=lambda row: row["score"])
    found = pd.DataFrame([{**row, "yours": row["name"] not in known} for row in rows])
    return found.drop(columns="name", errors="ignore")


def headline(table: pd.DataFrame) -> str:
    """The scores in a sentence, the best three if more ran."""
    rows = [row for row in _rows(table) if row["name"] != BASELINE]
    rows.sort(key=lambda row: row["score"])
    said = [
        f"{row['model']} scores {row['score']:.2f} ({row['low']:.2f} to {row['high']:.2f}) times "
        f"standard attention's D90, {row['passed']} tasks passed"
        for row in rows[:MAX_NAMED]
    ]
    return f"{'; '.join(said)}." if said else ""


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    done = best_rates(finished(scorable(table)))
    if BASELINE not in set(done["model"]):
        return []
    found = brackets(done)
    trained = done.assign(**{SPEED: done["steps"] / done["train_seconds"]})
    keys = ["model", *PLACE, "dim"]
    spent = trained.groupby(keys)[[*COSTS.values(), SPEED]].median()
    at_d90 = found.merge(spent, on=keys, how="left").set_index(["model", *PLACE])
    at_d90 = at_d90[[*COSTS.values()]]
    rows = []
    for model in dict.fromkeys(data.in_order(done)["model"]):
        mine = found[found["model"] == model]
        row = {"name": model, "model": style.model_look(model).label}
        row |= dict(zip(_task_names(mine), map(_in_words, mine.to_dict("records")), strict=True))
        row |= {"passed": f"{mine['d90'].notna().sum()}/{len(mine)}"}
        row |= score(found, model)._asdict()
        ratios = np.log(at_d90.loc[model] / at_d90.loc[BASELINE])
        row |= {name: np.exp(ratios[column].mean()) for name, column in COSTS.items()}
        row |= {SPEED: np.exp(np.log(spent.loc[model] / spent.loc[BASELINE])[SPEED].mean())}
        rows.append(row)
    return rows


def _task_names(rows: pd.DataFrame) -> pd.Series:
    """Task, format (unless chain of thought) and size in words."""
    named = rows.assign(format=rows["format"].where(rows["format"] != "cot"))
    return d90_by_task.place_names(rows.assign(column=data.words(named, ["task", "format"])))


def _in_words(line: Any) -> str:
    if not math.isnan(line["d90"]):
        return f"{line['d90']:g}"
    return "–" if math.isnan(line["accuracy"]) else f"{100 * line['accuracy']:.0f} %"
