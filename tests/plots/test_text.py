"""Names from anyone's table: drawn or replaced, told apart, and harmless in every file."""

import csv
import io
import string
import unicodedata

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from plots import style
from plots.layout import LABEL_BREAKS
from plots.text import (
    LONGEST_NAME,
    MISSING,
    csv_text,
    latex,
    printable,
    short_name,
    slugs,
    text_width,
    wrap,
)

PLAIN = st.text(string.ascii_letters + string.digits + "_.-", min_size=1, max_size=LONGEST_NAME)


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=400))
def test_a_short_name_is_one_line_of_what_the_font_can_draw(name):
    text = short_name(name)
    assert len(text) <= LONGEST_NAME
    assert not any(unicodedata.category(mark) in ("Cc", "Cf", "Zl", "Zp") for mark in text)
    assert text_width(text, 6) >= 0


@settings(max_examples=50, deadline=None)
@given(PLAIN)
def test_plain_names_stay_as_they_are(name):
    assert short_name(name) == name == printable(name)


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=60), st.text(max_size=60))
def test_two_names_stay_two(first, second):
    assume(first != second)
    assert short_name(first) != short_name(second)


def test_what_becomes_of_notorious_names():
    assert short_name("日本").startswith(MISSING * 2 + " #")
    assert short_name("a\tb\nc").startswith("a b c #")
    assert short_name(r"$\foo$ 100 % x_y") == r"$\foo$ 100 % x_y"
    assert short_name("w" * 300) != short_name("w" * 299)
    assert short_name("\u202eabc").startswith("abc #")


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(max_size=150), unique=True, max_size=6))
def test_file_names_are_plain_short_and_different(labels):
    found = slugs(labels)
    assert list(found) == labels and len(set(found.values())) == len(labels)
    for slug in found.values():
        assert slug and len(slug.encode()) <= 80 and "/" not in slug and "." not in slug


def test_labels_that_differ_in_punctuation_alone_get_files_of_their_own():
    assert len(set(slugs(["a b", "a_b", "A-b"]).values())) == 3


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.text(st.sampled_from("=+-@\t\r\n ,\"'a1.e"), max_size=8), min_size=1, max_size=5)
)
def test_no_exported_cell_is_a_formula(values):
    text = csv_text(pd.DataFrame({"=name": values, "number": -1.5}))
    header, *rows = csv.reader(io.StringIO(text, newline=""))
    assert header[0] == "'=name"
    for value, (cell, number) in zip(values, rows, strict=True):
        plain = value.replace("\r\n", "\n").replace("\r", "\n")
        assert number == "-1.5" and cell in (plain, f"'{plain}")
        assert cell[:1] not in tuple("=+-@\t") or np.isfinite(float(cell))


def test_formulas_are_quoted_and_numbers_are_not():
    text = csv_text(pd.DataFrame({"x": ["=1+1", "-2.5", "+cmd", "@a", "-x", "a=b"]}))
    assert text.split() == ["x", "'=1+1", "-2.5", "'+cmd", "'@a", "'-x", "a=b"]


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=50))
def test_latex_leaves_no_special_mark_and_no_letter_that_pdflatex_lacks(name):
    text = latex(name)
    for word in (r"\textbackslash{}", r"\textasciitilde{}", r"\textasciicircum{}", r"\dots{}"):
        text = text.replace(word, "")
    for word in (r"$\le$", r"$\ge$", r"$\times$", r"$\sqrt{}$", r"$\infty$", "$-$", "$<$", "$>$",
                 r"$\frac12$", r"$\frac14$", r"\dag{}"):  # fmt: skip
        text = text.replace(word, "")
    for mark in "%&#_${}":
        text = text.replace("\\" + mark, "")
    assert not set(text) & set("%&#_${}\\~^")
    assert all(ord(mark) < 0x180 for mark in text)


@settings(max_examples=50, deadline=None)
@given(st.text(string.ascii_letters + " ,=_", max_size=80), st.floats(0.3, 3))
def test_wrapped_lines_fit_and_lose_nothing(text, width):
    lines = wrap(text, width, 7, LABEL_BREAKS)
    assert all(text_width(line, 7) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_a_setting_is_broken_after_its_name():
    assert wrap("output_gate=False", 0.8, 7, LABEL_BREAKS) == ["output_gate=", "False"]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=2, max_size=5))
def test_the_printed_range_holds_the_printed_mean(shares):
    low, high = map(float, style.percent_range(min(shares), max(shares)))
    mean = style.percent(float(np.mean(shares)))
    inside = float(mean.strip("<>"))
    assert low <= inside <= high
    assert low <= 100 * min(shares) + 1e-4 and high >= 100 * max(shares) - 1e-4


@pytest.mark.parametrize(("low", "high", "shown"), [
    (0.997, 0.997, ("99.7", "99.7")), (0.9971, 0.9979, ("99.7", "99.8")),
    (0.0, 0.0001, ("0.0", "0.1")), (0.57, 1.0, ("57.0", "100")),
])  # fmt: skip
def test_ranges_are_rounded_outwards(low, high, shown):
    assert style.percent_range(low, high) == shown
