"""Axes of the embedding dimension, in octaves or half octaves."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

ROOM = 0.11  # inches that a tick's label needs


def dim_axis(axes: Axes, dims: Sequence[int], height: float) -> None:
    """Make the y axis of ``height`` inches one of D: a tick at each, labels where there is room.

    Where labels would touch, every second, third … keeps one, counted from the largest D.
    """
    dims = sorted(dims)
    axes.set_yscale("log", base=2)
    axes.set_ylim(dims[0] / 1.6, dims[-1] * 1.6)
    axes.yaxis.set_major_locator(FixedLocator([float(dim) for dim in dims]))
    axes.yaxis.set_minor_locator(NullLocator())
    step = max(1, -(-round(ROOM * len(dims) * 100) // round(height * 100)))
    shown = set(dims[::-1][::step])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:.0f}" if v in shown else ""))
