"""Multiplication tables compared with composed maps, and textbook facts about the groups."""

import numpy as np
import pytest
from oracles.words import identity, times

from tasks.monoids import DEFINITIONS, monoid_of

ORDERS = {"S3": 6, "A4": 12, "S4": 24, "A5": 60, "S5": 120, "A4xZ5": 60, "Z60": 60, "Z5": 5}
ABELIANISATIONS = {"S3": 2, "A4": 3, "S4": 2, "A5": 1, "S5": 2, "A4xZ5": 15, "Z60": 60, "Z5": 5}
INDICES = {"A5": 5, "S5": 5, "Z5": 5, "Z60": 5, "A4xZ5": 5, "S3": 3, "A4": 4, "S4": 4, "Z7": 7}
NAMES = [*DEFINITIONS, "Z2", "Z5", "Z60"]


@pytest.mark.parametrize("name", NAMES)
def test_table_matches_composed_maps(name):
    found, mul = monoid_of(name), times(name)
    assert found.elements[0] == identity(name)
    assert len(set(found.elements)) == len(found) and len(found.letters) == min(3, len(found))
    expected = [[found.number[mul(a, b)] for b in found.elements] for a in found.elements]
    assert found.table.tolist() == expected


@pytest.mark.parametrize("name", ORDERS)
def test_orders_and_abelianisations(name):
    group = monoid_of(name)
    assert group.is_group
    assert (group.table[np.arange(len(group)), group.inverse] == 0).all()
    assert len(group) == ORDERS[name]
    assert group.is_subgroup(group.commutators)
    assert len(group) // len(group.commutators) == ABELIANISATIONS[name]


@pytest.mark.parametrize("name", INDICES)
def test_subgroups_have_the_expected_index(name):
    group = monoid_of(name)
    assert group.is_subgroup(group.subgroup)
    assert len(group) == INDICES[name] * len(group.subgroup)
    if name in ("S3", "A4", "S4", "A5", "S5"):
        fixing = [i for i, element in enumerate(group.elements) if element[0] == "1"]
        assert list(group.subgroup) == fixing
