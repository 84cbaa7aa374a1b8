"""What happens to every text from a table before it is drawn or written.

A results table may come from anyone, so its names may hold whatever a text can.  Figures draw them
through `printable` and `short_name`; matplotlib's own markup is off (``text.parse_math`` in
`plots.style`); files take `slug`, `csv_text` and `latex`.
"""

from __future__ import annotations

import functools
import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ft2font import FT2Font

FONT = "DejaVu Sans"
LONGEST_NAME = 40
LONGEST_FILE_NAME = 80
MISSING = "\ufffd"  # the replacement character, which the font has
_FORMULA = ("=", "+", "-", "@", "\t")


def printable(text: object) -> str:
    """Return ``text`` on its lines, without control characters and glyphs that the font lacks."""
    lines = re.split(r"\r\n|[\n\r\v\f\x85\u2028\u2029]", str(text))
    return "\n".join("".join(_shown(mark) for mark in line) for line in lines)


def short_name(name: object) -> str:
    """Return ``name`` on one line of at most `LONGEST_NAME` characters.

    A name that had to be changed ends in four digits of its digest: two names stay two.
    """
    raw = str(name)
    text = " ".join(printable(raw).split())
    if text == raw and len(text) <= LONGEST_NAME:
        return text
    digest = f"#{_digest(raw)}"
    room = LONGEST_NAME - len(digest) - 1
    if len(text) > room:
        text = f"{text[: room * 2 // 3]}…{text[-(room - room * 2 // 3 - 1) :]}"
    return f"{text} {digest}".strip()


def sizes_text(places: Iterable[tuple[str, str, int]]) -> str:
    """Return (column, row, size) such as ``Arithmetic: Standard n = 2, 3; Linear n = 4``."""
    sizes: dict[str, dict[str, list[int]]] = {}
    for column, row, size in places:
        sizes.setdefault(column, {}).setdefault(row, []).append(size)
    return ". ".join(
        f"{column}: "
        + "; ".join(f"{row} n = {', '.join(map(str, at))}" for row, at in rows.items())
        for column, rows in sizes.items()
    )


def slugs(labels: Iterable[str]) -> dict[str, str]:
    """Return for each label its part of a file name, different for different labels."""
    found: dict[str, str] = {}
    for label in labels:
        text = re.sub(r"\W+", "_", label.lower()).strip("_") or "unnamed"
        if text in found.values() or len(text.encode()) > LONGEST_FILE_NAME:
            short = text.encode()[: LONGEST_FILE_NAME - 5].decode(errors="ignore")
            text = f"{short}_{_digest(label)}"
        found[label] = text
    return found


def csv_text(frame: pd.DataFrame) -> str:
    """Return ``frame`` as CSV in which no cell is a formula to a spreadsheet."""
    safe = frame.map(_no_formula).rename(columns=_no_formula)
    return safe.to_csv(index=False, lineterminator="\n")


def latex(text: str) -> str:
    """Return ``text`` as LaTeX that prints it; what pdfLaTeX has no glyph for becomes ``?``."""
    return "".join(_LATEX.get(mark, mark if _in_latex(mark) else "?") for mark in text)


def text_width(text: str, size: float) -> float:
    """Return the width of ``text`` in inches at ``size`` points, from the font's own metrics."""
    return sum(_advance(mark) for mark in text) * size / 72


def wrap(text: str, width: float, size: float, breaks: Sequence[str] = (" ", "")) -> list[str]:
    """Break ``text`` into lines no wider than ``width`` inches at ``size`` points.

    ``breaks`` are the expressions to break at; a later one only where the ones before leave a part
    that is too long.  One that ends in a space takes the space away; an empty one breaks anywhere.
    """
    lines: list[str] = []
    joint = " " if breaks[0].endswith(" ") else ""
    for paragraph in text.split("\n"):
        line = ""
        for part in re.split(breaks[0], paragraph) if breaks[0] else paragraph:
            longer = f"{line}{joint}{part}" if line else part
            if text_width(longer, size) <= width:
                line = longer
                continue
            if line:
                lines.append(line)
            fits = text_width(part, size) <= width or len(breaks) == 1
            *whole, line = [part] if fits else wrap(part, width, size, breaks[1:])
            lines += whole
        lines.append(line)
    return lines


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:4]


def _shown(mark: str) -> str:
    if mark == "\t":
        return " "
    if unicodedata.category(mark) in ("Cc", "Cf"):
        return ""
    return mark if _has_glyph(mark) else MISSING


def _no_formula(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    value = re.sub(r"\r\n?", "\n", value)  # a lone \r ends a line to some readers, unquoted
    if not value.startswith(_FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}", "≤": r"$\le$", "≥": r"$\ge$", "–": "--", "−": "$-$",
    "∞": r"$\infty$", "½": r"$\frac12$", "¼": r"$\frac14$", "†": r"\dag{}",
    "<": r"$<$", ">": r"$>$", "×": r"$\times$", "√": r"$\sqrt{}$",
    "…": r"\dots{}",
    **{mark: "\\" + mark for mark in "%&#_$"},
}  # fmt: skip


def _in_latex(mark: str) -> bool:
    return mark.isascii() or ("À" <= mark <= "ſ")


@functools.cache
def _has_glyph(mark: str) -> bool:
    return bool(_font().get_char_index(ord(mark)))


def _font() -> FT2Font:
    return get_font(findfont(FontProperties(family=FONT)))


@functools.cache
def _advance(mark: str) -> float:
    """Return how far ``mark`` moves the pen, in ems."""
    font = _font()
    font.set_size(64, 72)  # whoever drew last left another size
    return float(font.load_char(ord(mark)).linearHoriAdvance) / 65536 / 64
