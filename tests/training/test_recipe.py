import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import UserError
from training.recipe import Recipe


def recipe(**changes):
    return Recipe(**{"name": "x", "learning_rate": 1e-2, "batch_size": 8, "steps": 100, **changes})


def test_paper_budget_is_195_thousand_steps():
    paper = recipe(steps=None, epochs=100, batch_size=512)
    assert paper.total_steps(1_000_000) == math.ceil(100 * 1_000_000 / 512) == 195_313


def test_first_step_already_trains_and_warmup_ends_at_the_peak():
    r = recipe(warmup=0.1)
    assert r.learning_rate_at(0, 100, 64) == pytest.approx(1e-3)
    assert r.learning_rate_at(9, 100, 64) == pytest.approx(1e-2)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_schedule_falls_to_the_floor(schedule):
    r = recipe(schedule=schedule, final_learning_rate=0.1)
    rates = [r.learning_rate_at(step, 1000, 64) for step in range(1000)]
    assert max(rates) == pytest.approx(1e-2)
    assert rates[-1] == pytest.approx(1e-3, rel=0.02)
    assert all(a >= b for a, b in itertools.pairwise(rates[50:]))


def test_inverse_sqrt_does_not_depend_on_the_budget():
    short = recipe(schedule="inverse_sqrt", steps=1000, warmup_steps=100)
    long = recipe(schedule="inverse_sqrt", steps=10_000, warmup_steps=100)
    for step in (0, 99, 100, 399, 999):
        rate = short.learning_rate_at(step, 1000, 64)
        assert rate == pytest.approx(long.learning_rate_at(step, 10_000, 64))
    assert short.learning_rate_at(399, 1000, 64) == pytest.approx(5e-3)


def test_cooldown_ends_near_zero_and_leaves_the_rest_alone():
    plain = recipe(schedule="inverse_sqrt", warmup_steps=10)
    cooled = recipe(schedule="inverse_sqrt", warmup_steps=10, cooldown=0.25)
    rates = [(plain.learning_rate_at(s, 100, 64), cooled.learning_rate_at(s, 100, 64))
             for s in range(100)]  # fmt: skip
    assert all(a == b for a, b in rates[:76])
    assert rates[87][1] / rates[87][0] == pytest.approx(13 / 25)
    assert rates[99][1] / rates[99][0] == pytest.approx(1 / 25)


def test_peak_falls_with_width():
    r = recipe(reference_dim=32, learning_rate_exponent=0.5)
    assert r.peak_learning_rate(32) == 1e-2
    assert r.peak_learning_rate(128) == pytest.approx(5e-3)


@given(
    step=st.integers(0, 999),
    warmup=st.floats(0, 1),
    floor=st.floats(0, 1),
    cooldown=st.floats(0, 1),
    schedule=st.sampled_from(["linear", "cosine", "constant", "inverse_sqrt"]),
)
def test_rate_is_always_positive_and_at_most_the_peak(step, warmup, floor, cooldown, schedule):
    r = recipe(warmup=warmup, final_learning_rate=floor, schedule=schedule, cooldown=cooldown)
    assert 0 <= r.learning_rate_at(step, 1000, 64) <= 1e-2 * (1 + 1e-9)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"batch_size": 0}, "batch_size"),
        ({"steps": None}, "exactly one"),
        ({"epochs": 3}, "exactly one"),
        ({"dropout": 1.0}, "dropout"),
        ({"warmup": -0.1}, "warmup"),
        ({"warmup_steps": 0}, "warmup_steps"),
        ({"cooldown": 1.1}, "cooldown"),
        ({"betas": [0.9]}, "betas"),
        ({"betas": [0.9, 1.0]}, "betas"),
        ({"stop_at": 1.5}, "stop_at"),
        ({"average_decay": 1.0}, "average_decay"),
        ({"average_decay": -0.1}, "average_decay"),
    ],
)
def test_bad_values_are_refused_by_name(changes, named):
    with pytest.raises(UserError, match=named):
        recipe(**changes)
