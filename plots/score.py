"""A scored model: its D90 on each task and its cost beside standard attention.

References are models of the same experiment in `results/`, each beside the standard attention
measured with it.
"""

from typing import Any

import numpy as np
import pandas as pd

from experiments.config import CONF_DIR
from experiments.d90 import finished
from experiments.grid import BASELINE
from experiments.score import PLACE, places, scorable, score
from experiments.table import read_table
from plots import d90_by_task, data, style

MOST_SHOWN = 5  # models in the figure of costs
MOST_NAMED = 3  # in the headline
COSTS = {"state": "state_bytes", "training time": "train_seconds"}
SPEED = "tokens/s"


def references(experiment: str) -> pd.DataFrame:
    """The published rows of an experiment that can be scored, possibly none."""
    return scorable(read_table(CONF_DIR.parent / "results" / experiment))


def beside(table: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """Rows of the models to draw: standard attention, yours, then references."""
    rest = published[~published["model"].isin(table["model"])]
    both = data.in_order(pd.concat([table, rest], ignore_index=True) if len(rest) else table)
    known = set(published["model"])
    names = sorted(both["model"].unique(), key=lambda name: (name != BASELINE, name in known))
    return both[both["model"].isin(names[:MOST_SHOWN])]


def frame(table: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """A row per model, the lowest score first; `yours` marks those not published.

    `low` to `high` is the score's interval. A task's column holds D90, or the best median accuracy
    if no D passes. Costs are geometric means over tasks, relative to standard attention: state and
    training time each at its own D90 (else the largest D), training tokens per second at equal D.
    """
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
        for row in rows[:MOST_NAMED]
    ]
    return f"{'; '.join(said)}." if said else ""


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    done = finished(scorable(table))
    if BASELINE not in set(done["model"]):
        return []
    found = places(done)
    trained = done.assign(**{SPEED: done["steps"] / done["train_seconds"]})
    keys = ["model", *PLACE, "dim"]
    medians = trained.groupby(keys)[[*COSTS.values(), SPEED]].median()
    at_d90 = found.merge(medians, on=keys, how="left").set_index(["model", *PLACE])
    rows = []
    for model in dict.fromkeys(data.in_order(done)["model"]):
        mine = found[found["model"] == model]
        value, low, high, tasks = score(found, model)
        row = {"name": model, "model": style.model_look(model).label}
        row |= dict(zip(_task_names(mine), map(_in_words, data.rows_of(mine)), strict=True))
        row |= {"passed": f"{mine['d90'].notna().sum()}/{tasks}"}
        row |= {"score": value, "low": low, "high": high}
        ratios = at_d90.loc[model] / at_d90.loc[BASELINE]
        row |= {name: _mean(ratios[column]) for name, column in COSTS.items()}
        row |= {SPEED: _mean((medians.loc[model] / medians.loc[BASELINE])[SPEED])}
        rows.append(row)
    return rows


def _task_names(rows: pd.DataFrame) -> pd.Series:
    """Task, format (unless chain of thought) and size in words."""
    named = rows.assign(format=rows["format"].where(rows["format"] != "cot"))
    return d90_by_task.places(rows.assign(column=data.words(named, ["task", "format"])))


def _in_words(line: dict[str, Any]) -> str:
    if line["d90"] == line["d90"]:
        return f"{line['d90']:g}"
    return "–" if line["accuracy"] != line["accuracy"] else f"{100 * line['accuracy']:.0f} %"


def _mean(ratios: pd.Series) -> float:
    """Geometric mean of what is known."""
    return float(np.exp(np.log(ratios.dropna()).mean()))
