"""Small multiples with one legend and a footer, laid out in inches like the heatmap."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from plots import style
from plots.text import text_width, wrap

LEFT, RIGHT, TOP, BOTTOM = 0.62, 0.12, 0.26, 0.40
LINE = 0.105  # inches between the footer's lines


class Facets:
    """A figure of ``len(rows)`` times ``len(columns)`` panels that share both axes.

    ``entries`` are the legend's handles and ``footer`` the text under it.  Rows are labelled at
    the left, columns on top; `axes` gives a panel, with gid ``panel/<row>/<column>``.
    """

    def __init__(
        self,
        rows: Sequence[str],
        columns: Sequence[str],
        entries: Sequence[Any],
        footer: str,
        width: float = style.PAGE_WIDTH,
        panel_height: float = 1.05,
        gap: float = 0.14,
        share_x: Literal["all", "row"] = "all",
    ) -> None:
        lines = wrap(footer, width - 0.16, style.SMALL)
        widths = [text_width(str(e.get_label()), style.SMALL) + 0.5 for e in entries]
        self.legend_columns, legend_rows = legend_shape(widths, width - 0.1)
        foot = 0.06 + LINE * len(lines) + (0.08 + 0.135 * legend_rows if entries else 0.0)
        height = TOP + len(rows) * panel_height + gap * (len(rows) - 1) + BOTTOM + foot
        self.rows, self.columns = list(rows), list(columns)
        self.figure: Figure = style.new_figure(width, height)
        self.panels = self.figure.subplots(
            len(rows),
            len(columns),
            sharex=share_x,
            sharey=True,
            squeeze=False,
            gridspec_kw={
                "left": LEFT / width,
                "right": 1 - RIGHT / width,
                "top": 1 - TOP / height,
                "bottom": (BOTTOM + foot) / height,
                "wspace": gap / ((width - LEFT - RIGHT) / len(columns)),
                "hspace": gap / panel_height,
            },
        )
        self._label(width, height, foot)
        self._legend(list(entries), width, height, foot)
        write_footer(self.figure, lines)

    def axes(self, row: str, column: str) -> Axes:
        """Return the panel of ``row`` and ``column``."""
        axes: Axes = self.panels[self.rows.index(row), self.columns.index(column)]
        return axes

    def label(self, x: str, y: str) -> None:
        """Label the outer axes."""
        first, last = self.panels[0, 0].get_position(), self.panels[-1, -1].get_position()
        low = last.y0 - (BOTTOM - 0.05) / self.figure.get_size_inches()[1]
        self.figure.text((first.x0 + last.x1) / 2, low, x, ha="center", va="bottom", fontsize=7)
        middle = (first.y1 + last.y0) / 2
        self.figure.text(0.012, middle, y, rotation=90, ha="left", va="center", fontsize=7)

    def _label(self, width: float, height: float, foot: float) -> None:
        for i, row in enumerate(self.rows):
            for j, column in enumerate(self.columns):
                axes = self.panels[i, j]
                axes.set_gid(f"panel/{row}/{column}")
                axes.grid(True, linewidth=0.3, color="#dddddd")
                axes.set_axisbelow(True)
                if i == 0:
                    axes.set_title(column, pad=4)
                if j == 0 and row:
                    axes.set_ylabel(row, labelpad=2)

    def _legend(self, entries: list[Any], width: float, height: float, foot: float) -> None:
        if not entries:
            return
        self.figure.legend(
            handles=entries,
            loc="upper left",
            bbox_to_anchor=(0.04 / width, foot / height),
            ncols=self.legend_columns,
            columnspacing=1.2,
            handlelength=2.6,
            labelspacing=0.4,
            borderaxespad=0.2,
        )


def legend_shape(widths: Sequence[float], width: float) -> tuple[int, int]:
    """Return the most columns of entries that fit into ``width`` inches, and the rows they make."""
    for columns in range(len(widths), 0, -1):
        rows = -(-len(widths) // columns)
        stacks = np.array_split(widths, columns)  # as matplotlib fills a legend's columns
        if columns == 1 or sum(stack.max() for stack in stacks) <= width:
            return columns, rows
    return 1, 0


def write_footer(figure: Figure, lines: Sequence[str]) -> None:
    """Write ``lines`` at the foot of ``figure``, in small print."""
    width, height = figure.get_size_inches()
    for index, line in enumerate(lines):
        y = (0.05 + LINE * (len(lines) - 1 - index)) / height
        figure.text(0.08 / width, y, line, fontsize=style.SMALL, gid="footer")


def slug(label: str) -> str:
    """Return ``label`` as part of a file name."""
    return re.sub(r"\W+", "_", label.lower()).strip("_") or "unnamed"
