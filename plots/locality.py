"""D90 on ED and ED_Local against the number of letters, a panel per model.

The same questions with two kinds of chain: ED needs letters of the prompt at any distance, ED_Local
restates those that the next row needs. The bar below a point reaches down to the next smaller D
tried; an arrow up: no D passes, up to this one; an arrow down: the smallest D tried passes.

A task is m-local if no token needs one further back than m (the paper's section 5): sparse
attention then needs a constant D, linear attention at least √m.
"""

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from common import UserError
from experiments.config import measured_settings
from plots import data, style
from plots.required_dimension import draw_panels
from tasks.task import Task, build_task

TASKS = ("ed", "ed_local")


@style.styled
def draw(table: pd.DataFrame, facets: data.Facets = None, *, width: float, **_: Any) -> Figure:
    groups = data.d90_of_groups(table, {"only": (facets or {}).get("only", {})})
    groups = groups[groups["task"].isin(TASKS)]
    if groups["task"].nunique() < len(TASKS):
        raise UserError(f"the table must hold {' and '.join(TASKS)}")
    looks = {
        look.label: {"color": look.color, "marker": marker}
        for look, marker in zip(map(style.task_look, TASKS), "Dv", strict=True)
    }
    panels = groups.rename(columns={"row": "column", "column": "row"})
    return draw_panels(panels, looks, width, ("size", "letters"))


def locality(task: Task) -> tuple[int, int]:
    """The largest distance from a token to one it needs (m of Definition 5.3), and to one that it
    needs after the prompt, in 20 sequences."""
    drawn = task.draw(0, 0, 0, 20)
    farthest = after_prompt = 0
    for example in (task.decode(drawn, row) for row in range(20)):
        first = len(example.prompt)
        for at, needed in enumerate(task.dependencies(example), first):
            farthest = max([farthest, *(at - other for other in needed)])
            after_prompt = max([after_prompt, *(at - other for other in needed if other >= first)])
    return farthest, after_prompt


def distances(table: pd.DataFrame, records: data.Records) -> pd.DataFrame:
    """A row per task and size: n, L and `locality`."""
    known = table[table["task"].isin(TASKS)].drop_duplicates(["task", "size"])
    found = []
    for row in known.sort_values(["task", "size"]).to_dict("records"):
        config = records[row["cell"]]["config"]
        task = build_task(measured_settings(config["task"], config["measure"]["task"]))
        label = style.task_look(row["task"]).label
        m, chain = locality(task)
        found.append(
            {"task": label, "n": row["size"], "L": row["max_len"], "m": m, "m, chain": chain}
        )
    return pd.DataFrame(found)
