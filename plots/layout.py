"""The one layout of all figures: panels in rows and columns, placed in inches.

Nothing is shrunk to fit, so print has the size it says: panels widen to fill the page, columns
that do not fit go on in a further band below, and the page grows downwards.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from plots import style
from plots.text import printable, text_width, wrap

EDGE = 0.06  # inches of white around everything
LABEL = 0.125  # inches per line of a row's label or a column's title
LINE = 0.105  # inches per line of the footer
ENTRY, LEGEND_EDGE = 0.118, 0.03  # inches per row of the legend, and around it
SHORTEST_LABEL = 0.75  # inches of a row's label written upward; beside lower rows it lies level
LEVEL_LABEL = 0.84  # inches of a row's label that lies level
TICKS = 0.155  # inches under a panel, for its tick labels
AXIS_LABEL = 0.14  # inches per line of an axis label
LABEL_GAP = 0.06  # inches between the label of the y axis and those of the rows
TITLE_SIZE, ROW_SIZE, AXIS_SIZE = 8.0, 7.0, 7.0  # points
LABEL_BREAKS = (r"(?<=,) ", " ", r"(?<=[=_])", "")


class Layout:
    """A figure of panels, each with gid ``panel/<row>/<column>``, a legend and a footer.

    ``rows`` and ``columns`` are labels, written at the left and on top.  ``widths`` and ``heights``
    are inches, one for all panels or one each; widths are the least and may grow ``stretch`` times
    to fill the page.  ``gap`` is the inches between panels (across, down), ``ticks`` what tick
    labels need left of a panel and ``below`` what they need under it, ``right`` what stands right
    of the last.  ``entries`` are
    the legend's handles.  ``share_x`` is "all" (tick labels at the foot alone), "row" or "none".
    ``titles`` says what stands over a column where that is not its label.  Panels in ``blank``
    (row, column) are not drawn: a column's title and tick labels go to its first and last others.
    A footer or label may hold any text; it is drawn as far as the font goes.
    """

    def __init__(
        self,
        rows: Sequence[str],
        columns: Sequence[str],
        entries: Sequence[Any] = (),
        footer: str = "",
        *,
        widths: float | Sequence[float] = 1.0,
        heights: float | Sequence[float] = 1.05,
        stretch: float = math.inf,
        gap: tuple[float, float] = (0.14, 0.14),
        ticks: float = 0.26,
        below: float = TICKS,
        right: float = 0.12,
        x_label: str = "",
        y_label: str = "",
        share_x: Literal["all", "row", "none"] = "all",
        share_y: bool = True,
        titles: Mapping[str, str] | None = None,
        blank: Collection[tuple[str, str]] = (),
    ) -> None:
        self.rows, self.columns, self.entries = list(rows), list(columns), list(entries)
        self.gap, self.right, self.below = gap, right, below
        self.x_label = printable(x_label)
        self.share_x, self.share_y = share_x, share_y
        self.given_titles, self.blank = titles or {}, blank
        self._fit_rows(_each(heights, len(self.rows)))
        room = self.offsets[-1] + self.heights[-1] + 0.4  # the title's and the foot's place too
        lines = wrap(printable(y_label), room, AXIS_SIZE) if y_label else []
        self.y_label, self.label_left = "\n".join(lines), EDGE + AXIS_LABEL * len(lines)
        self.label_left += LABEL_GAP if lines else 0.0
        self.left = self.label_left + self._label_width() + 0.05 + ticks
        self._fit_widths(_each(widths, len(self.columns)), stretch)
        self._fit_heights(footer)
        self.figure: Figure = style.new_figure(self.width, self.height)
        self.panels: dict[tuple[str, str], Axes] = {}
        self._add_panels()
        self._add_legend()
        self._add_footer()

    def axes(self, row: str, column: str) -> Axes:
        """Return the panel of ``row`` and ``column``."""
        return self.panels[row, column]

    def add_axes(self, left: float, bottom: float, width: float, height: float) -> Axes:
        """Return new axes at a place in inches from the figure's lower left corner."""
        return self.figure.add_axes(
            (left / self.width, bottom / self.height, width / self.width, height / self.height)
        )

    def width_of(self, column: str) -> float:
        """Return the inches that the panels of ``column`` are wide."""
        return self.widths[self.columns.index(column)]

    @property
    def span(self) -> tuple[float, float, float]:
        """Where the first band's panels end to the right, below and above, in inches."""
        right = self._left_of(len(self.bands[0]), self.bands[0]) - self.gap[0]
        return right, self.height - self.band_height + self.bottom, self.height - self.top

    def _fit_rows(self, least: list[float]) -> None:
        """Break the rows' labels and heighten rows that are lower than theirs.

        Labels are written upward, or level where every row is low and some label is longer.
        """
        upward = [text_width(printable(row), ROW_SIZE) + 0.04 for row in self.rows]
        longer = any(text > high for text, high in zip(upward, least, strict=True))
        self.level = max(least) < SHORTEST_LABEL and longer
        rooms = [LEVEL_LABEL if self.level else max(high, SHORTEST_LABEL) for high in least]
        self.row_lines = [
            wrap(printable(row), room, ROW_SIZE, LABEL_BREAKS)
            for row, room in zip(self.rows, rooms, strict=True)
        ]
        needed = [LABEL * len(lines) for lines in self.row_lines]
        if not self.level:
            needed = [_longest(lines) + 0.04 for lines in self.row_lines]
        self.heights = [max(pair) for pair in zip(least, needed, strict=True)]
        self.offsets = [sum(self.heights[:i]) + self.gap[1] * i for i in range(len(self.rows))]

    def _label_width(self) -> float:
        """Return the inches that the rows' labels take beside the panels."""
        if self.level:
            return max(map(_longest, self.row_lines))
        return LABEL * max(len(lines) if any(lines) else 0 for lines in self.row_lines)

    def _fit_widths(self, least: list[float], stretch: float) -> None:
        """Choose column or page width, cut the columns into bands and widen them to fill it."""
        edges = self.left + self.right
        narrow = len(least) == 1 and edges + least[0] <= style.COLUMN_WIDTH
        page = style.COLUMN_WIDTH if narrow else style.PAGE_WIDTH
        for count in range(1, len(least) + 1):
            self.bands = [band.tolist() for band in np.array_split(range(len(least)), count)]
            needed = [sum(least[i] for i in band) for band in self.bands]
            rooms = [page - edges - self.gap[0] * (len(band) - 1) for band in self.bands]
            if all(need <= room for need, room in zip(needed, rooms, strict=True)):
                break
        grow = min(room / need for room, need in zip(rooms, needed, strict=True))
        self.widths = [width * min(max(grow, 1.0), stretch) for width in least]
        used = max(self._left_of(len(band), band) for band in self.bands) - self.gap[0]
        self.width = max(used + self.right, style.COLUMN_WIDTH)

    def _fit_heights(self, footer: str) -> None:
        given = [self.given_titles.get(column, column) for column in self.columns]
        titles = [
            wrap(printable(title), width + self.gap[0] / 2, TITLE_SIZE, LABEL_BREAKS)
            for title, width in zip(given, self.widths, strict=True)
        ]
        self.titles = ["\n".join(lines) for lines in titles]
        self.top = EDGE + LABEL * max(map(len, titles)) + 0.06
        self.bottom = self.below + (AXIS_LABEL if self.x_label else 0) + EDGE
        self.band_height = self.top + self.offsets[-1] + self.heights[-1] + self.bottom
        self.footer_lines = wrap(printable(footer), self.width - 0.16, style.SMALL)
        self.legend_top = 0.1 + LINE * len(self.footer_lines) + self._fit_legend()
        self.foot = self.legend_top + (0.04 if self.entries else 0.0)
        self.height = self.foot + self.band_height * len(self.bands)

    def _fit_legend(self) -> float:
        """Break labels that are too long, choose the legend's columns and return its height."""
        labels = [
            wrap(printable(entry.get_label()), self.width - 0.6, style.SMALL, LABEL_BREAKS)
            for entry in self.entries
        ]
        for entry, lines in zip(self.entries, labels, strict=True):
            text = "\n".join(lines)
            # matplotlib leaves out what begins with an underscore.
            entry.set_label(f"\N{HAIR SPACE}{text}" if text.startswith("_") else text)
        widths = [max(text_width(line, style.SMALL) for line in lines) + 0.5 for lines in labels]
        self.legend_columns, rows = legend_shape(widths, self.width - 0.1)
        edge = LEGEND_EDGE if rows else 0.0
        return edge + ENTRY * rows + LINE * sum(len(lines) - 1 for lines in labels)

    def _left_of(self, place: int, band: Sequence[int]) -> float:
        return self.left + sum(self.widths[i] + self.gap[0] for i in band[:place])

    def _add_panels(self) -> None:
        for number, band in enumerate(self.bands):
            top = self.height - self.band_height * number - self.top
            for y, row in enumerate(self.rows):
                bottom = top - self.offsets[y] - self.heights[y]
                for x, i in enumerate(band):
                    left = self._left_of(x, band)
                    axes = self.add_axes(left, bottom, self.widths[i], self.heights[y])
                    axes.set_gid(f"panel/{row}/{self.columns[i]}")
                    axes.set_visible((row, self.columns[i]) not in self.blank)
                    self.panels[row, self.columns[i]] = axes
                    first, last = self._ends(i)
                    self._share(axes, y, x, y == last)
                    if y == first:
                        axes.set_title(self.titles[i], pad=4, fontsize=TITLE_SIZE)
                middle = bottom + self.heights[y] / 2
                write = self._write_level if self.level else self._write_upward
                write("\n".join(self.row_lines[y]), self.label_left, middle, ROW_SIZE)
            lowest = top - self.offsets[-1] - self.heights[-1]
            self._write_upward(self.y_label, EDGE, (top + lowest) / 2, AXIS_SIZE)
            middle = (self.left + self._left_of(len(band), band) - self.gap[0]) / 2
            self._write(self.x_label, middle, lowest - self.bottom + EDGE, AXIS_SIZE, va="bottom")

    def _ends(self, column: int) -> tuple[int, int]:
        """Return the first and the last row whose panel in a column is drawn."""
        label = self.columns[column]
        drawn = [y for y, row in enumerate(self.rows) if (row, label) not in self.blank]
        return (drawn[0], drawn[-1]) if drawn else (0, len(self.rows) - 1)

    def _share(self, axes: Axes, y: int, x: int, foot: bool) -> None:
        """Share the axes of a new panel with the first; write tick labels once where shared."""
        first = self.panels[self.rows[0], self.columns[0]]
        first_in_x = first if self.share_x == "all" else self.panels[self.rows[y], self.columns[0]]
        if self.share_x != "none" and axes is not first_in_x:
            axes.sharex(first_in_x)
        if self.share_y and axes is not first:
            axes.sharey(first)
        axes.tick_params(
            labelbottom=self.share_x == "row" or foot,
            labelleft=x == 0 or not self.share_y,
        )

    def _write_upward(self, text: str, left: float, middle: float, size: float) -> None:
        self._write(text, left, middle, size, rotation=90, ha="left", va="center")

    def _write_level(self, text: str, left: float, middle: float, size: float) -> None:
        self._write(text, left, middle, size, ha="left", va="center")

    def _write(self, text: str, x: float, y: float, size: float, **look: Any) -> None:
        look = {"ha": "center", "fontsize": size, **look}
        self.figure.text(x / self.width, y / self.height, text, **look)

    def _add_legend(self) -> None:
        if self.entries:
            self.figure.legend(
                handles=self.entries,
                loc="upper left",
                bbox_to_anchor=(0.04 / self.width, self.legend_top / self.height),
                ncols=self.legend_columns,
                columnspacing=1.2,
                handlelength=2.6,
                labelspacing=0.4,
                borderaxespad=0.2,
            )

    def _add_footer(self) -> None:
        for index, line in enumerate(self.footer_lines):
            height = 0.05 + LINE * (len(self.footer_lines) - 1 - index)
            self._write(line, 0.08, height, style.SMALL, ha="left", gid="footer")


def _longest(lines: Sequence[str]) -> float:
    return max(text_width(line, ROW_SIZE) for line in lines)


def _each(value: float | Sequence[float], count: int) -> list[float]:
    return list(value) if isinstance(value, Sequence) else [value] * count


def legend_shape(widths: Sequence[float], width: float) -> tuple[int, int]:
    """Return the most columns of entries that fit into ``width`` inches, and the rows they make."""
    for columns in range(len(widths), 0, -1):
        rows = -(-len(widths) // columns)
        stacks = np.array_split(widths, columns)  # as matplotlib fills a legend's columns
        if columns == 1 or sum(stack.max() for stack in stacks) <= width:
            return columns, rows
    return 1, 0
