"""Does a local chain help? D90 on ED beside ED_Local at equal L, a panel per model.

A task is m-local if no token needs one further back than m (the paper's section 5): sparse
attention then needs a constant D, linear attention at least √m. ED_Local restates what the next row
needs, so m is small.
"""

import functools
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from common import UserError
from plots import data, style
from plots.required_dimension import draw_lines, label_axes, new_panels
from tasks.ed import EditDistance
from tasks.ed_local import EditDistanceLocal
from tasks.locality import locality

TASKS = {"ed": EditDistance, "ed_local": EditDistanceLocal}
MARKERS = {"ed": "o", "ed_local": "s"}


@style.styled
def draw(
    table: pd.DataFrame,
    width: float = style.PAGE_WIDTH,
    **_: Any,
) -> Figure:
    groups = data.of_groups(table)
    groups = groups[groups["task"].isin(TASKS)]
    if groups["task"].nunique() < len(TASKS):
        raise UserError(f"locality: the table must hold {' and '.join(TASKS)}")
    models = groups["row"].unique()
    looks = {
        style.task_look(task).label: {"color": style.task_look(task).color, "marker": marker}
        for task, marker in MARKERS.items()
    }
    figure = new_panels(len(models), width)
    for axes, model in zip(figure.axes, models, strict=True):
        part = groups[groups["row"] == model]
        draw_lines(axes, part.assign(row=part["column"]), looks)
        axes.set_title(model)
    label_axes(figure)
    figure.axes[0].set_ylabel("D90")
    style.legend_below(figure, looks)
    return figure


def distances(table: pd.DataFrame) -> pd.DataFrame:
    """A row per task and size: n, L, and the largest distance m to a needed token over 20
    sequences."""
    known = table[table["task"].isin(TASKS)].drop_duplicates(["task", "size"])
    known = known.sort_values(["task", "size"])
    frame = known[["task", "size", "max_len"]].reset_index(drop=True)
    frame["m"] = [distance(t, n) for t, n in zip(frame["task"], frame["size"], strict=True)]
    return frame.assign(task=[style.task_look(task).label for task in frame["task"]]).rename(
        columns={"size": "n", "max_len": "L"}
    )


@functools.cache
def distance(task: str, size: int) -> int:
    return locality(TASKS[task](size))[0]
