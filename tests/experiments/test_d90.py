"""D90 and its bracket on tables small enough to check by hand."""

import math

import pandas as pd
import pytest
from hypothesis import given

from experiments.d90 import bracket, medians, passes, required, settings_of
from tests.plots.small_tables import ACCURACY_BY_DIM, cells, joined, row


def test_d90_is_the_smallest_dim_whose_median_passes():
    table = cells({8: [0.2, 0.3, 0.99], 16: [0.89, 0.91, 0.95], 24: [0.5], 32: [1.0]})
    (line,) = required(table).to_dict("records")
    assert (line["d90"], line["low"], line["high"]) == (16, 8, 16)
    assert line["accuracy"] == 0.91
    assert line["seeds"] == 3
    assert line["success"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("measured", "expected"),
    [({8: 0.1, 12: 0.95, 32: 0.99}, (12, 8, 12)), ({8: 0.1, 32: 0.99}, (32, 8, 32)),
     ({8: 0.9, 16: 0.2}, (8, 0, 8)), ({8: 0.1, 96: 0.899}, (math.nan, 96, math.inf))],
)  # fmt: skip
def test_bracket_starts_at_the_largest_failing_dim(measured, expected):
    assert bracket(measured) == pytest.approx(expected, nan_ok=True)


@given(ACCURACY_BY_DIM)
def test_no_measured_dim_is_inside_the_bracket(measured):
    dim, low, high = bracket(measured)
    assert low < high
    assert not [d for d in measured if low < d < high]
    assert all(not passes(measured[d]) for d in measured if d <= low)
    assert math.isnan(dim) == (high == math.inf)
    assert math.isnan(dim) or passes(measured[dim])


def test_exactly_ninety_percent_passes():
    assert passes(0.9)
    assert passes(sum([0.3] * 3))  # 0.8999999999999999
    assert not passes(0.8999)


def test_median_of_an_even_number_of_seeds_is_the_mean_of_the_middle_two():
    assert medians(cells({8: [0.5, 0.9, 1.0, 0.8]}))["accuracy"].tolist() == [pytest.approx(0.85)]


def test_a_setting_that_no_row_has_is_one_group():
    table = cells({8: [0.2], 16: [0.95]})
    scale = pd.Series([None] * len(table), table.index, dtype="str")
    found = required(table.assign(**{"model.mixer.scale": scale}))
    assert found["d90"].tolist() == [16]
    assert found.dtypes["model.mixer.scale"] == "str"


@pytest.mark.parametrize("status", ["unfinished", "failed"])
def test_unfinished_and_failed_rows_are_ignored(status):
    table = joined(cells({8: [0.2], 16: [0.95]}), cells({12: [0.99]}, status=status))
    assert required(table)["d90"].tolist() == [16]
    assert required(cells({8: [0.1]}, status=status)).empty


def test_groups_differ_in_any_setting_except_dim_and_seed():
    table = joined(
        cells({8: [0.95]}, **{"recipe.learning_rate": 0.01}),
        cells({8: [0.2], 16: [0.95]}, **{"recipe.learning_rate": 0.02}),
        cells({8: [0.2]}, layers=5, **{"recipe.learning_rate": 0.01}),
    )
    assert required(table)["d90"].fillna(0).tolist() == [8, 16, 0]
    assert settings_of(table) == [
        "task", "size", "format", "model", "layers", "heads", "recipe", "precision",
        "recipe.learning_rate",
    ]  # fmt: skip


def test_settings_that_some_models_lack_also_define_groups():
    table = joined(cells({8: [0.95]}), cells({8: [0.2]}, **{"model.mixer.window_blocks": 2.0}))
    assert sorted(required(table)["d90"].fillna(0)) == [0, 8]


@pytest.mark.parametrize(
    ("edge", "expected"), [([False, False], False), ([True, False], True), ([None, None], False)]
)
@pytest.mark.parametrize("above", [[cells({32: [1.0]})], []], ids=["passes", "none passes"])
def test_still_improving_holds_for_any_seed_at_the_largest_failing_dim(edge, expected, above):
    rows = [row(16, 0.2, seed=i, still_improving=flag) for i, flag in enumerate(edge)]
    table = joined(cells({8: [0.1]}, still_improving=True), pd.DataFrame(rows), *above)
    assert required(table)["still_improving"].tolist() == [expected]
