"""Verdicts, resampled seeds, and models compared on equal seeds, worked out by hand."""

import itertools
import math

import made_up_tables as tables
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plots import exponents, seeds
from plots.cells import gather
from plots.exponents import verdict
from plots.fit import Growth, growth, growth_of_outcomes
from plots.frontier import requirements_of
from plots.paper import Prediction, predictions
from plots.resampling import doubts, intervals, resampled_median_reaches
from plots.style import new_figure
from plots.ticks import dim_axis

HALF_OCTAVES = [16, 24, 32, 48, 64, 96, 128]
CONSTANT, BOUND = Prediction(0.0), Prediction(0.25, "lower")
ENOUGH = Prediction(0.5, "upper")


@pytest.mark.parametrize(
    ("low", "high", "prediction", "expected"),
    [
        (-0.10, 0.12, CONSTANT, "confirmed"),
        (-0.20, 0.12, CONSTANT, "undecided"),
        (0.13, 0.40, CONSTANT, "contradicted"),
        (0.13, 0.90, BOUND, "confirmed"),
        (-0.30, 0.12, BOUND, "contradicted"),
        (0.00, 0.50, BOUND, "undecided"),
        (-np.inf, 0.50, CONSTANT, "undecided"),
        (0.20, np.inf, BOUND, "confirmed"),
        (-np.inf, 0.60, ENOUGH, "confirmed"),
        (0.63, np.inf, ENOUGH, "contradicted"),
        (0.40, 0.63, ENOUGH, "undecided"),
    ],
)
def test_a_verdict_follows_from_the_interval_alone(low, high, prediction, expected):
    assert verdict(Growth(0.1, low, high, 4), prediction, [])[0] == expected


def test_doubts_and_too_few_points_leave_a_verdict_undecided():
    sure = Growth(0.0, -0.1, 0.1, 4)
    assert verdict(sure, CONSTANT, ["1 of 4 sizes limited by the budget"]) == (
        "undecided", "1 of 4 sizes limited by the budget"
    )  # fmt: skip
    assert verdict(None, CONSTANT, []) == ("undecided", "too few points")
    assert verdict(sure, None, []) == ("", "")


def test_a_size_that_no_d_reaches_is_a_doubt_and_so_are_few_seeds_at_either_edge():
    """At the size reached, D = 32 has three seeds and D = 16, which misses, one."""
    rows = [tables.row(size=4, dim=32, seed=seed, answer_accuracy=0.99) for seed in range(3)]
    rows.append(tables.row(size=4, dim=16, answer_accuracy=0.2))
    rows += [tables.row(size=6, dim=32, seed=seed, answer_accuracy=0.5) for seed in range(3)]
    table = pd.DataFrame(rows)
    items = requirements_of(gather(table, tables.plan_of(table)), "Arithmetic", "Standard")
    assert [item.seeds for item in items] == [1, 3]
    assert doubts(items, ["no", ""]) == [
        "1 of 2 sizes that no D measured reaches",
        "1 of 2 sizes with fewer than 3 seeds",
    ]


def test_theory_says_what_table_1_does():
    assert [p.words() for p in predictions("arithmetic", "linear")] == ["at least 0.25"]
    assert [p.words() for p in predictions("lis", "linear")] == ["0.5"]
    assert [p.words() for p in predictions("lis", "standard")] == ["0"]
    assert [p.words() for p in predictions("ed", "sparse")] == [
        "at most 0.5", "0 (by distance of states)",
    ]  # fmt: skip
    assert [p.words() for p in predictions("ed_local", "sparse")] == ["0"]
    assert predictions("lis", "gated") == ()
    assert predictions("ed", "linear")[0].region(0.1) == (-math.inf, 0.6)
    assert predictions("ed", "linear")[1].region(0.1) == (0.15, math.inf)
    assert predictions("lis", "linear")[0].region(0.1) == (0.4, 0.6)


@given(st.lists(st.booleans(), min_size=1, max_size=4))
def test_resampled_medians_agree_with_all_draws_listed(reaches):
    draws = list(itertools.product(reaches, repeat=len(reaches)))
    middle = (len(reaches) - 1) // 2
    share = sum(sorted(draw)[middle] for draw in draws) / len(draws)
    assert resampled_median_reaches(reaches) == pytest.approx(share)


def test_intervals_of_resampled_least_d():
    found = intervals({16: 0.0, 24: 0.25, 32: 1.0, 48: 0.5})
    assert {ends: chance for ends, chance in found.items() if chance} == {
        (16.0, 24.0): 0.25, (24.0, 32.0): 0.75,
    }  # fmt: skip
    assert sum(found.values()) == 1
    assert intervals({16: 0.0}) == {(0.0, 16.0): 0.0, (16.0, math.inf): 1.0}


def test_doubt_about_seeds_widens_the_interval():
    lengths = [20, 40, 80, 160]
    ends = [(16, 24), (24, 32), (32, 48), (48, 64)]
    sure = [[(*pair, 1.0)] for pair in ends]
    doubtful = [[(*pair, 0.6), (pair[1], pair[1] * 2, 0.4)] for pair in ends]
    narrow, wide = growth_of_outcomes(lengths, sure), growth_of_outcomes(lengths, doubtful)
    assert narrow == growth(lengths, *zip(*ends, strict=True))
    assert wide.exponent == narrow.exponent
    assert wide.high - wide.low > narrow.high - narrow.low


def test_half_octaves_tell_a_quarter_from_nothing_and_octaves_do_not():
    lengths = np.geomspace(20, 640, 6)
    needed = 15 * (lengths / 20) ** 0.25

    def fitted(dims):
        below = [max((d for d in dims if d < need), default=0) for need in needed]
        return growth(lengths, below, [min(d for d in dims if d >= need) for need in needed])

    halves, octaves = fitted(HALF_OCTAVES), fitted([8, 16, 32, 64, 128])
    assert 0 < halves.low <= 0.25 <= halves.high
    assert halves.high - halves.low < octaves.high - octaves.low
    assert halves.at(lengths) == pytest.approx(needed, rel=0.25)


def test_the_table_of_exponents_says_why_it_cannot_decide(tmp_path):
    table = tables.product(["lis"], ["standard", "other"], [10, 20, 40], HALF_OCTAVES)
    paths = exponents.draw(table, tables.plan_of(table), tables.experiment(), tmp_path)
    assert [path.suffix for path in paths] == [".csv", ".md", ".tex"]
    frame = pd.read_csv(paths[0]).set_index("model")
    assert frame.loc["Standard", "verdict"] == "undecided"
    assert "fewer than 3 seeds" in frame.loc["Standard", "why"]
    assert "that the budget may limit" in frame.loc["Standard", "why"]
    assert pd.isna(frame.loc["other", "verdict"]) and pd.isna(frame.loc["other", "theory"])
    text = paths[2].read_text()
    assert r"\label{tab:exponents:example}" in text and text.count(r"\caption{") == 1


def test_labels_of_half_octaves_keep_apart():
    axes = new_figure(3, 2).add_axes((0.1, 0.1, 0.8, 0.8))
    dims = [16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024]
    dim_axis(axes, dims, height=0.8)
    assert list(axes.yaxis.get_majorticklocs()) == dims
    labels = [text for text in axes.yaxis.get_major_formatter().format_ticks(dims) if text]
    assert labels == ["16", "32", "64", "128", "256", "512", "1024"]
    dim_axis(axes, dims, height=1.9)
    assert all(axes.yaxis.get_major_formatter().format_ticks(dims))


def accuracies(model, shares, dim=32):
    return [
        tables.row(model=model, dim=dim, seed=seed, answer_accuracy=share)
        for seed, share in enumerate(shares)
    ]


def test_models_are_compared_on_equal_seeds():
    rows = accuracies("standard", [0.9, 0.8, 0.7]) + accuracies("linear", [0.8, 0.6, 0.6, 0.1])
    table = pd.DataFrame(rows)
    grid = gather(table, tables.plan_of(table))
    spread = seeds.spread(grid).set_index("model")
    assert spread.loc["Standard", ["seeds", "mean", "sd"]].tolist() == pytest.approx([3, 0.8, 0.1])
    assert spread.loc["Linear", "seeds"] == 4
    (line,) = seeds.paired(grid).itertuples()
    # Differences .1, .2, .1: mean .1333, sd .0577, half width 4.303 * .0577 / sqrt 3 = .1434.
    assert (line.model, line.other_model, line.seeds, line.better) == ("Standard", "Linear", 3, 3)
    assert line.difference == pytest.approx(0.13333, abs=1e-5)
    assert line.sd == pytest.approx(0.057735, abs=1e-6)
    assert (line.low, line.high) == pytest.approx((-0.01010, 0.27676), abs=1e-4)


def test_without_equal_seeds_nothing_is_compared(tmp_path):
    table = pd.DataFrame(accuracies("standard", [0.9]) + accuracies("linear", [0.8]))
    paths = seeds.draw(table, tables.plan_of(table), tables.experiment(), tmp_path)
    assert "no spread can be stated" in next(p for p in paths if p.suffix == ".md").read_text()
    assert pd.isna(pd.read_csv(tmp_path / "seeds.csv")["sd"]).all()
