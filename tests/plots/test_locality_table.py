"""ED beside ED_Local: least D at equal L compared by hand, and what would decide a statement."""

import dataclasses

import made_up_tables as tables
import numpy as np
import pandas as pd
import pytest

from plots import locality
from plots.exponents import deciding, decisive_length
from plots.fit import Growth
from plots.frontier import Requirement
from plots.locality import compare
from plots.paper import Prediction

DIMS = [16, 24, 32, 48, 64, 96, 128]
CONSTANT, BOUND = Prediction(0.0), Prediction(0.25, "lower")


def needs(size, length, below, dim, seeds=3):
    return Requirement(size, length, dim, below, dim or below, 0.95, (), (), seeds=seeds)


ED = [needs(2, 20, 24, 32), needs(4, 42, 48, 64), needs(7, 90, 64, 96)]


@pytest.mark.parametrize(
    ("length", "below", "dim", "expected"),
    [
        (48, 32, 48, "helps"),  # ED at L = 42 needs more than 48
        (48, 48, 64, ""),
        (48, 64, 96, ""),
        (48, 96, 128, "hurts"),  # ED at L = 90 needs 96 at most
        (48, 96, None, "hurts"),
        (42, 64, 96, "hurts"),
        (42, 32, 48, "helps"),
        (100, 96, 128, ""),  # ED has no longer one
        (10, None, 16, ""),  # ED has no shorter one
    ],
)
def test_least_d_are_compared_at_equal_length(length, below, dim, expected):
    assert compare(needs(3, length, below, dim), ED) == expected


def test_an_ed_that_fails_is_larger_than_all():
    failed = [needs(4, 42, 128, None)]
    assert compare(needs(3, 48, 64, 128), failed) == "helps"
    assert compare(needs(3, 48, 128, None), failed) == ""


def table_of(ed_needs, local_needs):
    sizes = {"ed": [(2, 20), (4, 42), (7, 90)], "ed_local": [(2, 30), (3, 48), (4, 70)]}
    found = []
    for task, needed in (("ed", ed_needs), ("ed_local", local_needs)):
        for (size, length), least in zip(sizes[task], needed, strict=True):
            found += [
                tables.row(task, "linear", size, dim, seed, max_len=length,
                           answer_accuracy=0.95 if dim >= least else 0.5)
                for dim in DIMS for seed in range(3)
            ]  # fmt: skip
    return pd.DataFrame(found)


def written(table, folder):
    paths = locality.draw(table, tables.plan_of(table), tables.experiment(), folder / "figures")
    return {path.suffix: path for path in paths}


def test_the_table_has_the_measured_m_and_a_verdict(tmp_path):
    paths = written(table_of([48, 64, 96], [32, 32, 32]), tmp_path)
    frame = pd.read_csv(paths[".csv"])
    local = frame[frame["task"] == "ED_Local"]
    assert local["locality"].tolist() == ["helps"] * 3
    assert local[["below", "dim"]].to_numpy().tolist() == [[24, 32]] * 3
    # ED's entries need letters at the prompt's begin: m is nearly L; ED_Local's m is one block.
    ratios = frame["m"] / frame["max_len"]
    assert ratios[frame["task"] == "ED"].min() > 0.6 > ratios[frame["task"] == "ED_Local"].max()
    text = paths[".md"].read_text()
    assert "- Linear: undecided (ED: 3 of 3 sizes that the budget may limit; " in text
    assert "at 3 of 3 lengths locality helps, at 0 it hurts. ED D ~ L^" in text


def test_a_verdict_needs_agreement_and_no_doubt():
    sure = locality.Compared([], ED, {2: "helps", 3: "", 4: "helps"}, [])
    assert sure.verdict == "helps"
    assert dataclasses.replace(sure, by_size={2: "helps", 3: ""}).verdict == "undecided"
    assert dataclasses.replace(sure, by_size={2: "helps", 3: "hurts"}).verdict == "undecided"
    assert dataclasses.replace(sure, by_size={2: ""}).verdict == "undecided"
    assert dataclasses.replace(sure, doubtful=["1 of 3 sizes ..."]).verdict == "undecided"


def test_without_both_tasks_there_is_nothing_to_compare(tmp_path):
    table = table_of([48, 64, 96], [32, 32, 32])
    assert written(table[table["task"] == "ed"], tmp_path) == {}


def test_what_would_decide_names_sizes_and_lengths():
    items = [needs(2, 16, None, 16), needs(4, 64, 16, 24, seeds=1), needs(6, 256, 128, None)]
    told = deciding(Growth(0.1, -0.2, 0.4, 3), CONSTANT, items, ["yes", "unknown", ""])
    assert told.startswith(
        "more steps at n = 2; more steps (or curves) at n = 4; 3 seeds at n = 4; "
        "larger D at n = 6; smaller D at n = 2"
    )
    absent = dataclasses.replace(needs(8, 500, None, None), best_dim=None, seeds=0)
    told = deciding(Growth(0.0, -0.1, 0.1, 3), CONSTANT, [*ED, absent], ["no"] * 3 + [""])
    assert told == "results at n = 8"
    assert deciding(None, CONSTANT, ED, ["no"] * 3).startswith("least D at three sizes")


def test_the_length_that_would_decide():
    """Half width 0.25 about 0, region to 0.125: twice the span of four octaves from 16."""
    items = [needs(2, 16, 16, 24), needs(4, 256, 16, 24)]
    assert decisive_length(Growth(0.0, -0.25, 0.25, 2), CONSTANT, items) == 4100
    assert decisive_length(Growth(0.0, -0.1, 0.1, 2), CONSTANT, items) is None
    assert decisive_length(Growth(0.0, -np.inf, 0.25, 2), CONSTANT, items) is None
    # A lower bound has no upper end: 0.375 lies 0.25 above 0.125, and reaches 0.5 down.
    assert decisive_length(Growth(0.375, -0.125, np.inf, 2), BOUND, items) == 4100
