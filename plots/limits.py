"""How figures mark what is known of a least D: from above only, perhaps, or from below only."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.path import Path

from plots.budgets import UNKNOWN, YES

WORDS = {YES: "limited by the budget", UNKNOWN: "not known whether the budget limits it"}
NO_SMALLER = "dotted bar: no smaller D measured"
LARGER = "not reached: larger than the mark"
_HEAD = Path([(-0.6, -1.0), (0.0, 0.0), (0.6, -1.0)])
_ARROW = Path([(0, -1), (0, 1), (-0.5, 0.3), (0, 1), (0.5, 0.3)], [1, 2, 1, 2, 2])
_STUB = Path([(0, y) for y in (-1.0, -0.6, -0.2, 0.2, 0.6, 1.0)], [1, 2] * 3)
_FACES: dict[str, dict[str, Any]] = {
    YES: {"markerfacecolor": "white"},
    # A thin edge: half of a small triangle is not seen behind a thick one.
    UNKNOWN: {"fillstyle": "left", "markerfacecoloralt": "white", "markeredgewidth": 0.5},
}


def mark(axes: Axes, x: float, dim: float, limit: str, look: dict[str, Any], gid: str) -> None:
    """Lay a hollow mark over the one at ``dim`` where the budget limits it, a half one where that
    is not known; ``limit`` is one of `plots.budgets`.

    ``gid`` gets the prefix ``limited/`` or ``perhaps/``.
    """
    if limit in _FACES:
        prefix = "limited" if limit == YES else "perhaps"
        over = {**look, "linestyle": "", "zorder": 3, **_FACES[limit]}
        axes.plot([x], [dim], gid=f"{prefix}/{gid}", **over)


def arrow(axes: Axes, x: float, below: float, look: dict[str, Any], gid: str) -> None:
    """Draw the model's own mark, small, at the largest D that fails, and an open arrow upward.

    A filled head would pass for the mark of a least D.
    """
    line: dict[str, Any] = {"color": look["color"], "linewidth": 0.9, "linestyle": "-"}
    head: dict[str, Any] = {"marker": _HEAD, "markersize": 5, "fillstyle": "none", "markevery": [1]}
    axes.plot([x, x], [below, below * 1.3], gid=gid, **line, **head)
    small = 0.65 * look.get("markersize", 3.5)
    own = {"color": look["color"], "marker": look["marker"], "markersize": small}
    axes.plot([x], [below], gid=f"{gid}/mark", linestyle="", **own)


def bar(
    axes: Axes, x: float, below: float | None, dim: float, look: dict[str, Any], gid: str
) -> None:
    """Draw the bar from a least D down to the largest that fails; a dotted stub where none ran."""
    ends = [dim / 1.35 if below is None else below, dim]
    line: dict[str, Any] = {"linestyle": (0, (1, 1)) if below is None else "-", "zorder": 1.5}
    axes.plot([x, x], ends, color=look["color"], linewidth=0.9, gid=gid, **line)


def entries(
    limits: Collection[str],
    larger: bool = False,
    unbounded: bool = False,
    words: Mapping[str, str] = WORDS,
) -> list[Line2D]:
    """Return the legend's entries for those of ``limits`` that a figure has, in ``words``, and for
    arrows (``larger``) and dotted stubs (``unbounded``) where it has these."""
    black: dict[str, Any] = {"color": "black", "linestyle": ""}
    found = []
    if larger:
        head: dict[str, Any] = {"marker": _ARROW, "markersize": 7, "fillstyle": "none"}
        found.append(Line2D([], [], label=LARGER, **head, **black))
    for limit, face in _FACES.items():
        if limit in limits:
            found.append(Line2D([], [], marker="o", label=words[limit], **face, **black))
    if unbounded:
        stub: dict[str, Any] = {"marker": _STUB, "markersize": 8, "fillstyle": "none"}
        found.append(Line2D([], [], label=NO_SMALLER, **stub, **black))
    return found
