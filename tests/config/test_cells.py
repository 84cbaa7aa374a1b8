"""Cells that could be built but never measured or tabled are refused when they are read."""

import pytest

from common import UserError
from config.compose import compose_plain
from config.schema import validate_cell

CONSTRUCT = {"name": "made", "construct": {"_target_": "my_weights.make"}}


def plain(*words):
    return compose_plain("train", ["logger=none", *words])


@pytest.mark.parametrize("split", ["train", "validation"])
def test_constructed_weights_are_measured_on_test_sequences_alone(split):
    """Nothing is drawn to train them, so the other sets are empty."""
    with pytest.raises(UserError, match=f"^measure.split={split}: ") as refusal:
        validate_cell({**plain(f"measure.split={split}"), "model": CONSTRUCT})
    assert "leave measure.split=test" in str(refusal.value)
    assert validate_cell({**plain(), "model": CONSTRUCT}).measure.split == "test"


def test_a_task_without_a_size_is_refused():
    with pytest.raises(UserError, match=r"^missing key task\.size") as refusal:
        validate_cell({**plain(), "task": {"_target_": "my_task.Sums"}})
    assert len(str(refusal.value).splitlines()) == 1
