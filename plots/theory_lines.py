"""The dotted lines of `plots.required_dimension`: the growth of D that theory predicts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from plots import paper, style

DOTTED: dict[str, Any] = {"linestyle": (0, (1, 2)), "linewidth": 0.9, "zorder": 1}
LABEL_SIZE = 5.5  # points
_POWERS = {0.0: "constant", 0.25: "∜L", 0.5: "√L"}


class Label(NamedTuple):
    """What stands at the right end of a line: at D = ``dim``, by which power D grows."""

    dim: float
    text: str
    color: str


def predicted(frame: pd.DataFrame, row: str) -> bool:
    """Tell whether theory says something of a model in any panel that has two sizes of it."""
    own = frame[frame["model"] == row]
    parts = [part for _, part in own.groupby("task") if part["max_len"].nunique() > 1]
    reached = [part[part["state"] == "reached"] for part in parts]
    firsts = [part.iloc[0] for part in reached if len(part)]
    return any(paper.predictions(first["task_name"], first["name"]) for first in firsts)


def draw(axes: Axes, part: pd.DataFrame, row: str, color: str) -> list[Label]:
    """Draw theory's lines for one model, with gids ``theory/<row>/<exponent>``; return labels.

    Theory gives slopes, not constants: each line starts where the first size was measured.
    """
    known = part[part["state"] == "reached"].sort_values("max_len")
    if known.empty or part["max_len"].nunique() < 2:
        return []
    first, labels = known.iloc[0], []
    lengths = np.array([part["max_len"].min(), part["max_len"].max()])
    for prediction in paper.predictions(first["task_name"], first["name"]):
        dims = first["dim"] * (lengths / first["max_len"]) ** prediction.exponent
        gid = f"theory/{row}/{prediction.exponent:g}"
        axes.plot(lengths, dims, color=color, gid=gid, **DOTTED)
        bound = {"equal": "", "lower": "≥ ", "upper": "≤ "}[prediction.bound]
        text = f"{bound}{_POWERS.get(prediction.exponent, f'{prediction.exponent:g}')}"
        labels.append(Label(float(dims[1]), text, color))
    return labels


def write(axes: Axes, labels: list[Label], right: float, height: float) -> None:
    """Write the labels right of L = ``right``, clear of each other; ``height``: the panel's inches.

    One that several lines share where they end is written once, in grey.
    """
    low, high = np.log2(axes.get_ylim())
    gap = (LABEL_SIZE + 1.5) / 72 * (high - low) / height
    place = -np.inf
    for dim, text, color in _merged(labels):
        place = max(float(np.log2(dim)), place + gap)
        axes.annotate(
            text, (right, 2**place), xytext=(6, 0), textcoords="offset points",
            fontsize=LABEL_SIZE, color=color, ha="left", va="center", annotation_clip=False,
        )  # fmt: skip


def _merged(labels: list[Label]) -> list[Label]:
    found: dict[tuple[float, str], str] = {}
    for dim, text, color in sorted(labels):
        place = (round(dim, 6), text)
        found[place] = color if found.get(place, color) == color else style.GREY
    return [Label(dim, text, color) for (dim, text), color in found.items()]
