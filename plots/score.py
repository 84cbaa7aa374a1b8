"""Score a model: its D90 on each task relative to standard attention's, their mean, and its costs.

A D90 is known up to its bracket (`experiments.d90`). A task that is not passed counts as twice the
largest D tried. A model that has not run every task up to its D90, or the largest D, has no score,
so leaving out hard tasks does not help; nor has one that ran in several settings. References are
models of the same experiment in `results/`, each beside the standard attention measured with it.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from experiments.config import CONF_DIR
from experiments.d90 import bracket, finished, medians, passes, settings_of
from experiments.grid import BASELINE
from experiments.table import read_cells, read_table
from plots import costs, d90_by_task, data, style

PLACE = ["task", "format", "size"]
DRAWS = 10_000
MAX_NAMED = 3  # in the headline
TIME, SPEED = "training time", "training speed"
COSTS = {"parameters": "params", "state": "state_bytes", TIME: "train_seconds"}
RATE = "recipe.learning_rate"


class Score(NamedTuple):
    """The geometric mean over the tasks of D90 over standard attention's. `low` to `high` are
    the central 95 % if each D90 is drawn log-uniformly from its bracket."""

    score: float
    low: float
    high: float


def scorable(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of models with a score: in one setting, and on every task that standard attention
    ran, up to a D that passes or to the largest; a failed run counts as run."""
    if table.empty:
        return table
    ended = table[table["status"] != "unfinished"]
    largest = ended[ended["model"] == BASELINE].groupby(PLACE, as_index=False)["dim"].max()
    needed = list(map(tuple, largest.to_numpy()))
    shown = [key for key in settings_of(table) if not key.startswith(data.BESIDE_TASK)]
    names = []
    for model, rows in ended.groupby("model", sort=False):
        good = medians(rows)
        passing = good["accuracy"].map(passes).astype(bool)
        solved = set(map(tuple, good.loc[passing, PLACE].to_numpy()))
        ran = set(map(tuple, rows[[*PLACE, "dim"]].to_numpy()))
        settings = rows[[key for key in shown if key not in (*PLACE, RATE)]]
        if len(settings.drop_duplicates()) == 1 and all(
            place[:-1] in solved or place in ran for place in needed
        ):
            names.append(model)
    return table[table["model"].isin(names if BASELINE in names else [])]


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


def best_rates(table: pd.DataFrame, records: data.Records) -> pd.DataFrame:
    """The table without its learning rates: of each model and task, the rows of the rate with the
    most correct validation chains at the end of training, the median of the seeds averaged over
    those D at which every rate ran."""
    if RATE not in table:
        return table
    kept = []
    for _, rows in table.groupby(["model", "task", "format"], sort=False):
        chains = [_validation(records.get(cell, {})) for cell in rows["cell"]]
        by_dim = rows.assign(chains=chains).pivot_table("chains", "dim", RATE, "median")
        best = by_dim.dropna().mean()
        rate = best.idxmax() if best.notna().any() else rows[RATE].mode().iloc[0]
        kept.append(rows[rows[RATE] == rate])
    return pd.concat(kept).drop(columns=RATE)


def _validation(record: data.Records) -> float:
    chains = record.get("curve", {}).get("validation_chain_exact_match")
    return chains[-1] if chains else math.nan


def score(found: pd.DataFrame, model: str) -> Score:
    """The score of a model among the rows of `brackets`."""
    mine, base = (found[found["model"] == name] for name in (model, BASELINE))
    if model == BASELINE:
        return Score(1.0, 1.0, 1.0)
    random = np.random.default_rng(0)

    def drawn(rows: pd.DataFrame) -> np.ndarray:
        training = pd.factorize(rows["task"] + rows["format"])[0]  # sizes share its weights
        place = random.random((DRAWS, training.max() + 1))[:, training]
        low, high = np.log(rows["low"].to_numpy()), np.log(rows["high"].to_numpy())
        return low + place * (high - low)

    low, high = np.quantile((drawn(mine) - drawn(base)).mean(1), [0.025, 0.975])
    value = np.log(mine["high"].to_numpy() / base["high"].to_numpy()).mean()
    return Score(*np.exp([value, low, high]).tolist())


def references(experiment: str) -> pd.DataFrame:
    """The published rows of an experiment that can be scored, possibly none."""
    folder = CONF_DIR.parent / "results" / experiment
    return scorable(best_rates(read_table(folder), read_cells(folder)))


def with_references(table: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """Rows of the models to draw: standard attention, yours, then references."""
    table = finished(scorable(table))
    rest = published[~published["model"].isin(table["model"])]
    both = data.in_order(pd.concat([table, rest], ignore_index=True) if len(rest) else table)
    known = set(published["model"])
    names = sorted(both["model"].unique(), key=lambda name: (name != BASELINE, name in known))
    return both[both["model"].isin(names[: 1 + costs.MAX_PANELS])]


def frame(table: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """A row per model, the lowest score first; `yours` marks those not published. Costs are
    geometric means over the tasks, without a D90 those of the largest D. Times are those of your
    own models: references trained on several machines."""
    ran, known = set(table["model"]), {*published["model"], BASELINE}
    rows = _rows(table) + [row for row in _rows(published) if row["name"] not in ran]
    rows.sort(key=lambda row: row["score"])
    found = pd.DataFrame([{**row, "yours": row["name"] not in known} for row in rows])
    if found.empty:
        return found
    found[[TIME, SPEED]] = found[[TIME, SPEED]].where(found["yours"], axis=0)
    return found.drop(columns="name").dropna(axis=1, how="all")


def headline(table: pd.DataFrame) -> str:
    """The scores in a sentence, the best three if there are more."""
    rows = [row for row in _rows(table) if row["name"] != BASELINE]
    rows.sort(key=lambda row: row["score"])
    said = [
        f"{row['model']} scores {row['score']:.2f} ({row['low']:.2f} to {row['high']:.2f}) and "
        f"passes {row['passed'].replace('/', ' of ')} tasks"
        for row in rows[:MAX_NAMED]
    ]
    return f"{'; '.join(said)}." if said else ""


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    done = finished(scorable(table))
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
    """Task, format and size in words, as in the table of D90."""
    return d90_by_task.place_names(data.labelled(rows).reindex(rows.index))


def _in_words(line: Any) -> str:
    if not math.isnan(line["d90"]):
        return f"{line['d90']:g}"
    return "–" if math.isnan(line["accuracy"]) else f"{math.floor(100 * line['accuracy'])} %"
