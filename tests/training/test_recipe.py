"""Recipes: learning rates over time and settings that are refused."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from experiments.grid import cell_of
from training.recipe import Rates, Recipe

KINDS = [field.name for field in dataclasses.fields(Rates)]


def recipe(**changes):
    return Recipe(**{"name": "x", "learning_rate": 1e-2, "batch_size": 8, "steps": 100, **changes})


@pytest.mark.parametrize(
    ("epochs", "batches", "steps"),
    [(0.07, 100, 7), (1.1, 10, 11), (0.071, 100, 8), (0.5, 1, 1), (1e-05, 100, 1), (2.5, 3, 8),
     (3, 10 / 512, 3), (100, 1_000_000 / 512, 195_400)],
)  # fmt: skip
def test_fractional_epochs_are_not_rounded_up_by_floating_point_error(epochs, batches, steps):
    """0.07 * 100 is 7.000000000000001 in floating point; the last case is the paper's budget."""
    budget = recipe(steps=None, epochs=epochs, batch_size=512)
    assert budget.total_steps(int(512 * batches)) == steps


def test_first_step_already_trains_and_warmup_ends_at_the_peak():
    r = recipe(warmup=0.1)
    assert r.learning_rate_at(0, 100) == pytest.approx(1e-3)
    assert r.learning_rate_at(9, 100) == pytest.approx(1e-2)


@pytest.mark.parametrize(
    ("schedule", "quarter", "last"),
    [("linear", 0.875, 0.500625), ("cosine", 0.9267767, 0.5000019), ("constant", 1, 1),
     ("inverse_sqrt", (200 / 401) ** 0.5, 0.5)],
)  # fmt: skip
def test_rates_after_warmup_a_quarter_of_the_way_down_and_at_the_end(schedule, quarter, last):
    r = recipe(schedule=schedule, final_learning_rate=0.5, warmup_steps=200)
    rates = [r.learning_rate_at(step, 1000) for step in (0, 199, 400, 999)]
    assert rates == pytest.approx([1e-2 / 200, 1e-2, 1e-2 * quarter, 1e-2 * last])
    if schedule == "inverse_sqrt":  # does not depend on the budget
        assert rates == [r.learning_rate_at(step, 10_000) for step in (0, 199, 400, 999)]


def test_cooldown_ends_near_zero_and_leaves_earlier_rates_unchanged():
    plain = recipe(schedule="inverse_sqrt", warmup_steps=10)
    cooled = recipe(schedule="inverse_sqrt", warmup_steps=10, cooldown=0.25)
    rates = [(plain.learning_rate_at(s, 100), cooled.learning_rate_at(s, 100))
             for s in range(100)]  # fmt: skip
    assert all(a == b for a, b in rates[:76])
    assert rates[87][1] / rates[87][0] == pytest.approx(13 / 25)
    assert rates[99][1] / rates[99][0] == pytest.approx(1 / 25)


SCHEDULES = st.sampled_from(["linear", "cosine", "constant", "inverse_sqrt"])


@given(st.integers(0, 999), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), SCHEDULES)
def test_rate_is_never_negative_and_at_most_the_peak(step, warmup, floor, cooldown, schedule):
    r = recipe(warmup=warmup, final_learning_rate=floor, schedule=schedule, cooldown=cooldown)
    assert 0 <= r.learning_rate_at(step, 1000) <= 1e-2 * (1 + 1e-9)


@pytest.mark.parametrize(
    "changes",
    [
        {"learning_rate": 0.0}, {"learning_rate": float("nan")}, {"batch_size": 0},
        {"dropout": 1.0}, {"warmup": -0.1}, {"warmup_steps": 0}, {"cooldown": 1.1},
        {"betas": [0.9, 1.0]}, {"stop_at": 1.5}, {"average_decay": 1.0}, {"embedding_ratio": 0.0},
        {"gradient_clip": 0}, {"reference_dim": 0}, {"weight_decay": 1.5},
        {"final_learning_rate": -1.0}, {"validate_every": 0}, {"decay": "none"},
        {"optimizer": "sgd"}, {"precision": "auto"}, {"learning_rte": 1.0},
    ],
    ids=str,
)  # fmt: skip
def test_bad_values_are_rejected_by_name(changes):
    (key,) = changes
    with pytest.raises(ValidationError, match=key):
        recipe(**changes)


def shipped(name):
    return cell_of([f"recipe={name}"]).config.recipe


def test_paper_trains_every_parameter_at_one_rate_and_decays_only_matrices():
    paper = shipped("paper")
    assert {paper.rate_factor(kind, dim) for kind in KINDS for dim in (32, 1024)} == {1.0}
    assert (paper.optimizer, paper.learning_rate, paper.betas) == ("adamw", 1e-4, [0.9, 0.999])
    assert (paper.weight_decay, paper.decay, paper.decay_vectors) == (0.01, "coupled", False)
    assert (paper.embedding_ratio, paper.dropout, paper.batch_size) == (None, 0.1, 512)
    assert (paper.schedule, paper.warmup, paper.warmup_steps) == ("linear", 0.05, None)
    assert (paper.epochs, paper.final_learning_rate, paper.gradient_clip) == (100, 0.0, None)


@pytest.mark.parametrize("name", ["fast", "quick", "long"])
def test_fast_scales_every_role_with_the_width(name):
    fast = shipped(name)
    fall = {kind: fast.rate_factor(kind, 32) / fast.rate_factor(kind, 512) for kind in KINDS}
    assert fall == {"hidden": 4.0, "embedding": 1.0, "head": 16.0, "vector": 1.0}
