"""D90 of several models on several tasks, a shaded table.

D90, darker where it is larger. ≤: the smallest D tried passes; >: none passes up to this D.
"""

import math
from collections.abc import Mapping
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from plots import data, style

HEIGHT, WIDTH, LINE = 0.19, 0.85, 0.12  # inches of a cell, and of a line of text
BLUES = ListedColormap(matplotlib.colormaps["Blues"](np.linspace(0.05, 0.65, 256)))  # under black


@style.styled
def draw(
    table: pd.DataFrame,
    facets: data.Facets = None,
    scores: Mapping[str, float] | None = None,
    *,
    width: float,
    **_: Any,
) -> Figure:
    """With `scores` by model, the lowest comes first."""
    groups = data.d90_of_groups(table, facets)
    if scores:
        score = groups["model"].map(scores)
        labels = groups["row"] + score.map(" ({:.2f})".format)
        groups = groups.assign(row=labels, score=score).sort_values("score", kind="stable")
    texts = matrix(groups).set_index("D90")
    if scores:
        texts = texts.loc[groups["row"].unique()]
    above = groups["d90"].fillna(4 / 3 * groups["low"])  # D90, or a little above all that ran
    shades = by_place(groups, np.log2(above), "D90").set_index("D90").loc[texts.index]
    if len(texts) < len(texts.columns):
        texts, shades = texts.T, shades.T
    width = min(width, 1.2 + WIDTH * len(texts.columns))
    narrow = width < 1.2 + 0.7 * len(texts.columns)
    room = (1.4 if narrow else 1.0) * (width - 1.2) / len(texts.columns)  # narrow: small letters
    heads = [
        "\n".join(style.wrapped(part, room) for part in name.split(", "))
        for name in map(str, texts)
    ]
    label = "D90, the smallest embedding dimension that reaches 90 %"
    label = style.wrapped(
        "D90; in parentheses: score (lower is better)" if scores else label, width - 1.2
    )
    lines = max(head.count("\n") for head in heads) + label.count("\n") + 2
    figure = style.new_figure(width, HEIGHT * len(texts) + LINE * lines + 0.2)
    axes = figure.add_subplot()
    axes.pcolormesh(shades, cmap=BLUES, edgecolor="white", linewidth=1)
    for (y, x), text in np.ndenumerate(texts):
        axes.text(x + 0.5, y + 0.5, text, ha="center", va="center_baseline")
    axes.invert_yaxis()
    axes.set_xticks(np.arange(len(heads)) + 0.5, heads)
    axes.set_yticks(np.arange(len(texts)) + 0.5, texts.index)
    axes.tick_params(length=0, labeltop=True, labelbottom=False)
    axes.tick_params(axis="x", labelsize="x-small" if narrow else "medium")
    axes.spines[:].set_visible(False)
    axes.set_xlabel(label)
    return figure


def place_names(groups: pd.DataFrame) -> pd.Series:
    """Task and size of each group in words, e.g. `Arithmetic, 4 operators`."""
    pairs = zip(groups["column"], groups["task"], groups["size"], strict=True)
    names = [f"{column}, {style.size_in_words(task, size)}" for column, task, size in pairs]
    return pd.Series(names, groups.index, dtype=object)


def d90_in_words(line: Any) -> str:
    """`24`, `≤ 8` or `> 96`."""
    if math.isnan(line["d90"]):
        return f"> {line['low']:g}"
    return f"{'' if line['low'] > 0 else '≤ '}{line['d90']:g}"


def matrix(groups: pd.DataFrame) -> pd.DataFrame:
    """The figure's content as a table of text."""
    return by_place(groups, list(map(d90_in_words, groups.to_dict("records"))), "D90").fillna("")


def listing(groups: pd.DataFrame) -> pd.DataFrame:
    """`matrix`, with a row per task and size if those are more than the models."""
    table = matrix(groups).set_index("D90")
    return (table.T if len(table) < len(table.columns) else table).rename_axis("D90").reset_index()


def by_place(groups: pd.DataFrame, values: Any, name: str) -> pd.DataFrame:
    """`values` of the groups, a row per model (column `name`), a column per task and size."""
    named = groups.assign(place=place_names(groups), value=values).drop_duplicates(["row", "place"])
    wide = named.pivot(index="row", columns="place", values="value")
    rows = data.in_order(named.assign(task=""))["row"].unique()  # of all tasks, by model
    columns = pd.Categorical(named["column"], named["column"].unique())
    places = named.assign(column=columns).sort_values(["column", "size"], kind="stable")["place"]
    wide = wide.loc[rows, places.unique()]
    return wide.rename_axis(index=name, columns=None).reset_index()
