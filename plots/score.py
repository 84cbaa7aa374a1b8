"""Score a model: its D90 on each task relative to standard attention's, their mean, and its costs.

A D90 is known up to its bracket (`experiments.d90`). A task that is not passed counts as twice the
largest D tried. A model that has not run every task up to its D90, or the largest D, has no score,
so leaving out hard tasks does not help. A model that ran in several settings has none either.
References are models of the same experiment in `results/`.
"""

import math
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from common import CONF_DIR
from experiments.d90 import bracket, finished, medians, passes, settings_of
from experiments.grid import BASELINE, Experiment
from experiments.table import read_table
from plots import d90_by_task, data, style

PLACE = ["task", "format", "size"]
DRAWS = 10_000
MAX_NAMED = 3  # in the headline
TIME, STEP = "training time (×)", "time per step (×)"
COSTS = {"parameters (×)": "params", "state (×)": "state_bytes", TIME: "train_seconds"}


class Score(NamedTuple):
    """The geometric mean over the tasks of D90 over standard attention's. `low` to `high` are
    the central 95 % if each D90 is drawn log-uniformly from its bracket."""

    score: float
    low: float
    high: float


class Scores(NamedTuple):
    """`rows`: a row per model with a score, the lowest first; `without`: why your other models have
    none; `table`: the finished rows that count; `yours`: models with an unpublished cell of yours;
    `comparable`: whether published models ran with your settings."""

    rows: list[dict[str, Any]]
    without: dict[str, str]
    table: pd.DataFrame
    yours: set[str]
    comparable: bool


def scores_of(experiment: Experiment, table: pd.DataFrame) -> Scores:
    return scores(table, read_table(CONF_DIR.parent / "results" / experiment.name))


def scores(table: pd.DataFrame, published: pd.DataFrame) -> Scores:
    """Scores of your models, and of `published` ones that you did not run. The tasks are those that
    standard attention ran in the published table, or else in yours. References count only if your
    standard attention ran some of the published cells: other settings make other cells."""
    ran = table if published.empty else published
    largest = ran[ran["model"] == BASELINE].groupby(PLACE, as_index=False)["dim"].max()
    tasks = list(map(tuple, largest.to_numpy()))
    standard = table.loc[table["model"] == BASELINE, "cell"]
    comparable = published.empty or standard.empty or bool(standard.isin(published["cell"]).any())
    own, without = _scorable(table, tasks)
    rest, _ = _scorable(published if comparable else published.head(0), tasks)
    known = set(table["model"])
    rows = _rows(own) + [row for row in _rows(rest) if row["name"] not in known]
    rest = rest[~rest["model"].isin(known)]
    shown = pd.concat([own, rest], ignore_index=True) if len(rest) else own
    return Scores(
        rows=sorted(rows, key=lambda row: row["score"]),
        without=without,
        table=data.in_order(shown),
        yours=set(table.loc[~table["cell"].isin(published["cell"]), "model"]) - {BASELINE},
        comparable=comparable,
    )


def _scorable(
    table: pd.DataFrame, tasks: Sequence[tuple[Any, ...]]
) -> tuple[pd.DataFrame, dict[str, str]]:
    """The finished rows of models with a score, and why the others have none."""
    why = reasons(table, tasks)
    return finished(table[table["model"].map(why) == ""]), {m: w for m, w in why.items() if w}


def reasons(table: pd.DataFrame, tasks: Sequence[tuple[Any, ...]]) -> dict[str, str]:
    """Why each model has no score, or "" if it has one. To have one, it must run in one setting
    and, on every task, reach a D that passes or the largest D. A failed run counts as run."""
    ended = table[table["status"] != "unfinished"]
    keys = [key for key in settings_of(table) if key not in PLACE]
    everywhere = [key for key in keys if not key.startswith(data.BESIDE_TASK)]
    found = {}
    for model in table["model"].unique():
        rows = ended[ended["model"] == model]
        good = medians(rows)
        passing = good["accuracy"].map(passes).astype(bool)
        solved = set(map(tuple, good.loc[passing, PLACE].to_numpy()))
        tried = set(map(tuple, rows[[*PLACE, "dim"]].to_numpy()))
        ran = sum(place[:-1] in solved or place in tried for place in tasks)
        several = len(rows[everywhere].drop_duplicates()) > 1
        several |= len(rows[[*PLACE, *keys]].drop_duplicates()) > len(rows[PLACE].drop_duplicates())
        why = "ran in several settings" if several else ""
        if good.empty:
            why = "every run failed"
        if model == BASELINE and not solved:
            why = "passes no task"
        found[model] = f"ran {ran} of {len(tasks)} tasks" if ran < len(tasks) else why
    missing = found.get(BASELINE, "did not run")
    return {m: f"standard attention {missing}" if missing else why for m, why in found.items()}


def brackets(table: pd.DataFrame) -> pd.DataFrame:
    """A row per model and task that standard attention ran, in the table's order: `model`, `PLACE`,
    `d90` (nan if none passed), `is_bound` (no smaller D ran), `dim` (D90, or the largest D that
    ran), `accuracy` (the best median), and `low` and `high`, a closed bracket of D90."""
    found = medians(table)
    own = found[found["model"] == BASELINE].groupby(PLACE, sort=False)["dim"]
    rows = []
    for model in table["model"].unique():
        for place, tried in own:
            here = (found[PLACE] == list(place)).all(axis=1) & (found["model"] == model)
            by_dim = found[here].set_index("dim")["accuracy"]
            dim, low, high = bracket(by_dim.to_dict())
            least, ran = min(by_dim.index, default=math.nan), max(by_dim.index, default=math.nan)
            rows.append(
                {"model": model, **dict(zip(PLACE, place, strict=True)), "d90": dim}
                | {"dim": ran if math.isnan(dim) else dim, "accuracy": by_dim.max()}
                | {"is_bound": dim == least}
                | {"low": low or (min(tried.min(), least) / 2 if len(by_dim) else tried.max())}
                | {"high": high if math.isfinite(high) else 2 * max(tried.max(), ran)}
            )
    return pd.DataFrame(rows)


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


def frame(given: Scores, models: Collection[str] | None = None) -> pd.DataFrame:
    """D90 on each task (≤: no smaller D ran), or the best accuracy where no D reaches 90 %. Score:
    the geometric mean over the tasks of D90 divided by standard attention's (lower is better); a
    failed task counts as twice the largest D tried. In parentheses, the central 95 % of scores if
    each D90 is drawn log-uniformly from its bracket. Costs are relative to standard attention's:
    parameters, state and training time each at its own D90 (or largest D), time per step at equal
    D; times only for your models. Bold: yours.

    Costs are geometric means over the tasks, at D90 or else at the largest D. References trained on
    several machines, hence no times. Only `models` are shown.
    """
    rows = given.rows + [
        {"name": name, "model": style.model_look(name).label, "passed": f"no score: {reason}"}
        for name, reason in given.without.items()
    ]
    rows = [row for row in rows if models is None or row["name"] in models]
    found = pd.DataFrame([{**row, "yours": row["name"] in given.yours} for row in rows])
    for column in {TIME, STEP} & set(found):
        found[column] = found[column].where(found["yours"])
    return found.drop(columns="name").dropna(axis=1, how="all")


def headline(given: Scores, models: Collection[str]) -> str:
    """The scores of `models` in a sentence, the best three if there are more."""
    said = [
        f"{row['model']} scores {row['score']:.2f} ({row['low']:.2f} to {row['high']:.2f}) and "
        f"passes {row['passed'].replace('/', ' of ')} tasks"
        for row in given.rows
        if row["name"] in models and row["name"] != BASELINE
    ]
    said = said or [
        f"{style.model_look(name).label} has no score: {why}"
        for name, why in given.without.items()
        if name != BASELINE
    ]
    said = said[:MAX_NAMED]
    if not given.comparable:
        said.append("published models ran with other settings and are not shown")
    return f"{'; '.join(said)}." if said else ""


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    done = finished(table)
    if BASELINE not in set(done["model"]):
        return []
    found = brackets(done)
    trained = done.assign(**{STEP: done["train_seconds"] / done["steps"]})
    keys = ["model", *PLACE, "dim"]
    spent = trained.groupby(keys)[[*COSTS.values(), STEP]].median()
    at_d90 = found.merge(spent, on=keys, how="left").set_index(["model", *PLACE])
    at_d90 = at_d90[[*COSTS.values()]]
    rows = []
    for model in dict.fromkeys(data.in_order(done)["model"]):
        mine = found[found["model"] == model]
        row = {"name": model, "model": style.model_look(model).label}
        names = d90_by_task.place_names(data.labelled(mine).reindex(mine.index))
        row |= dict(zip(names, map(_in_words, mine.to_dict("records")), strict=True))
        row |= {"passed": f"{mine['d90'].notna().sum()}/{len(mine)}"}
        row |= score(found, model)._asdict()
        ratios = np.log(at_d90.loc[model] / at_d90.loc[BASELINE])
        row |= {name: np.exp(ratios[column].mean()) for name, column in COSTS.items()}
        row |= {STEP: np.exp(np.log(spent.loc[model] / spent.loc[BASELINE])[STEP].mean())}
        rows.append(row)
    return rows


def _in_words(line: Any) -> str:
    if not math.isnan(line["d90"]):
        return f"{'≤ ' * line['is_bound']}{line['d90']:g}"
    return "–" if math.isnan(line["accuracy"]) else f"{math.floor(100 * line['accuracy'] + 1e-9)} %"
