"""What the committed records say of speed; a model that they lack fails here, nothing is timed."""

import json

import pytest

from benchmarks import scaling, steps
from benchmarks.shared.report import RECORDS

# A power of L up to here is linear time, with fixed costs and the cache; `standard` has 2, `sparse`
# 1.5 and more.
LINEAR = 1.25
# Third-order attention makes K x K sums a token; its step is not held to the bound of the others.
THIRD_ORDER = {"tensor_linear"}
# Passes this short fit the cache at half the length and not at the whole: their power of L is the
# cache's.
SHORT = 0.02  # seconds


def record(name):
    return json.loads((RECORDS / name).read_text())


@pytest.mark.parametrize("name", ["steps.json", "steps_small.json"])
def test_no_model_takes_more_than_three_times_standards_step(name):
    ratios = {row["model"]: row["ratio"] for row in record(name)["rows"]}
    assert set(ratios) == set(steps.Options().models)
    slow = {model for model, ratio in ratios.items() if ratio > 3}
    assert slow <= THIRD_ORDER


def test_what_claims_linear_time_has_an_exponent_near_one():
    whole = record("scaling_mixers.json")
    last = [row for row in whole["rows"] if row["length"] == scaling.LENGTHS[-1]]
    longest = {row["mixer"]: row["seconds"] for row in last}
    assert set(scaling.linear_time()) == set(whole["exponents"]) == set(longest)
    assert {name for name, seconds in longest.items() if seconds < SHORT} == {"running_mean"}
    for name, fit in whole["exponents"].items():
        assert 0.8 < fit["seconds"] < LINEAR, name
        assert longest[name] < SHORT or 0.8 < fit["seconds_upper_half"] < LINEAR, name


def test_the_bound_separates_linear_time_from_the_others():
    attention = record("scaling.json")["exponents"]
    linear = {name for name, fit in attention.items() if fit["seconds_upper_half"] < LINEAR}
    assert set(attention) == {"standard", "sparse", "linear"} and linear == {"linear"}


def test_every_measured_mixer_has_every_length():
    whole = record("scaling_mixers.json")
    found = {(row["mixer"], row["length"]) for row in whole["rows"] if "seconds" in row}
    assert found == {(name, n) for name in whole["exponents"] for n in scaling.LENGTHS}
