"""The share of generated chains still right after each position.

Test chains without a mistake so far (Kaplan–Meier), seeds pooled.

The estimate is the product over places of 1 - first mistakes / chains that get there.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from plots import curves, data, style


@style.styled
def draw(
    table: pd.DataFrame, records: data.Records, width: float, facets: data.Facets = None, **_: Any
) -> Figure:
    """A panel per model and size, a line per D."""
    rows = curves.panels_by_size(table, facets, records, "errors")
    figure, grid = curves.new_grid(rows, width)
    colors = style.dim_colors(rows["dim"].unique())
    for (panel, row, dim), part in rows.groupby(["panel", "row", "dim"], sort=True):
        places, share = survival(e["by_position"] for e in data.errors_of(part, records))
        grid[panel, row].step(places, 100 * share, where="mid", color=colors[dim])
    for axes in figure.axes:
        style.percent_axis(axes)
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    figure.supylabel("chains still right (%)", fontsize="medium")
    curves.dim_legend(figure, colors, "tokens after the prompt")
    return figure


def survival(counts: Iterable[list[list[int]]]) -> tuple[np.ndarray, np.ndarray]:
    """Places and the share of chains still right after each (Kaplan-Meier). `counts` has for each
    seed rows [place, first mistakes there, chains that get there]."""
    rows = [row for seed in counts for row in seed]
    total = pd.DataFrame(rows, columns=["place", "wrong", "came"]).groupby("place").sum()
    total = total[total["came"] > 0]
    share = (1 - total["wrong"] / total["came"]).cumprod()
    return total.index.to_numpy(), share.to_numpy()
