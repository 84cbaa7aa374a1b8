"""A printed table, in Markdown and in LaTeX."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from plots import style
from plots.text import csv_text
from plots.text import latex as escape

_WORDS = ("task", "model", "currency", "verdict", "theory", "why", "models", "would decide")
_MATHS = ("n", "L", "D")


@dataclass(frozen=True)
class Tabular:
    """A header, rows of as many texts, and what is said beside them.

    ``caption`` is one sentence, ``notes`` say what it needs besides, ``said`` what follows.  A None
    in a row is taken up by the cell before it.  A rule stands where the first ``groups`` cells
    change.  Cells at the (row, column) of ``marked`` are bold.
    """

    title: str
    label: str
    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str | None]]
    notes: Sequence[str] = ()
    said: Sequence[str] = ()
    groups: int = 2
    marked: Collection[tuple[int, int]] = ()

    def markdown(self) -> str:
        """Return the table in Markdown under its title, with what is said below it."""
        used = self._used()
        rule = ("---" if self.header[i] in _WORDS else "---:" for i in used)
        lines = [
            _line([self.header[i] for i in used]),
            f"|{'|'.join(rule)}|",
            *(_line([self._bold(y, i, "**{}**") for i in used]) for y in range(len(self.rows))),
        ]
        above = [
            f"# {self.title}",
            "",
            *(x for text in (self.caption, *self.notes) for x in (text, "")),
        ]
        return "\n".join([*above, *lines, "", *(f"- {text}" for text in self.said)]) + "\n"

    def _bold(self, y: int, x: int, form: str) -> str:
        text = (self.rows[y][x] or "").replace("|", "\\|")
        return form.format(text) if (y, x) in self.marked else text

    def latex(self) -> str:
        """Return a ``table`` environment for a document that loads ``booktabs``."""
        used = self._used()
        align = "".join("l" if self.header[i] in _WORDS else "r" for i in used)
        body = []
        for y, row in enumerate(self.rows):
            if self.rows[max(0, y - 1)][: self.groups] != row[: self.groups]:
                body.append(r"\midrule")
            cells = _latex_cells(row, used, [(y, i) in self.marked for i in used])
            body.append(" & ".join(cells) + r" \\")
        kind = "table*" if len(used) > 7 else "table"
        notes = [escape(text) for text in self.notes]
        return "\n".join([
            r"% needs \usepackage{booktabs}",
            *(f"% {text}" for text in self.said),
            rf"\begin{{{kind}}}", r"\centering", r"\small",
            rf"\caption{{{escape(self.caption)}}}",
            rf"\label{{tab:{self.label}}}",
            rf"\begin{{tabular}}{{{align}}}", r"\toprule",
            " & ".join(_latex_header(self.header[i]) for i in used) + r" \\", r"\midrule",
            *body, r"\bottomrule", r"\end{tabular}",
            *([r"\par\smallskip", r"\parbox{\linewidth}{\footnotesize " + " ".join(notes) + "}"]
              if notes else []),
            rf"\end{{{kind}}}", "",
        ])  # fmt: skip

    def _used(self) -> list[int]:
        """Leave out the columns in which no row says anything."""
        spanned = any(None in row for row in self.rows)
        return [
            i
            for i in range(len(self.header))
            if not self.rows or any(row[i] or (spanned and row[i] is None) for row in self.rows)
        ]

    def texts(self, frame: pd.DataFrame) -> dict[str, str]:
        """Return ``frame`` as CSV, and the table in both forms, by suffix."""
        return {
            "csv": csv_text(frame),
            "md": self.markdown(),
            "tex": self.latex(),
        }


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _latex_header(name: str) -> str:
    return f"${name}$" if name in _MATHS else escape(name)


def _latex_cells(row: Sequence[str | None], used: Sequence[int], bold: Sequence[bool]) -> list[str]:
    cells: list[str] = []
    place = 0
    for text, followers in _with_span([row[i] for i in used]):
        span, told = followers + 1, escape(text)
        told = rf"\textbf{{{told}}}" if bold[place] else told
        cells.append(rf"\multicolumn{{{span}}}{{r}}{{{told}}}" if followers else told)
        place += span
    return cells


def _with_span(texts: Sequence[str | None]) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for text in texts:
        if text is None:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((text, 0))
    return found


def plain(value: Any) -> str:
    """Return a value as text, empty where there is none."""
    return "" if value is None or pd.isna(value) else str(value)


def significant(value: float) -> str:
    """Return three significant digits in plain decimals, nothing for what is not known."""
    if np.isnan(value):
        return ""
    digits = max(0, 2 - int(np.floor(np.log10(value)))) if value > 0 else 0
    return f"{value:.{min(digits, 9)}f}"


def label_of(kind: str, experiment: str) -> str:
    """Return a LaTeX label such as ``flops:table2``, of letters, digits and hyphens."""
    return f"{kind}:{''.join(mark if mark.isalnum() else '-' for mark in experiment)}"


def write(texts: dict[str, str], out: Any, name: str) -> list[Any]:
    """Write ``name.csv``, ``.md`` and ``.tex`` under ``out`` and return their paths."""
    return [style.write_text(text, out / f"{name}.{kind}") for kind, text in texts.items()]
