"""Bytes moved by a token, counted by hand, and the intensity from which they decide."""

import math

import pytest

from models.linear import LinearAttention
from models.standard import StandardAttention
from models.transformer import Transformer
from plots.costs import break_even_intensity, token_traffic


@pytest.mark.parametrize("batch", [1, 64])
def test_bytes_are_weights_shared_and_state_of_ones_own(batch):
    models = [Transformer(5, 3, 8, 1, 2, mixer) for mixer in (StandardAttention, LinearAttention)]
    weights = 4 * sum(p.numel() for p in models[0].parameters()) / batch
    (_, cache), (_, sums) = (token_traffic(model, 3, batch) for model in models)
    entry, state = 2 * 4 * 8, 4 * 2 * 4 * 5
    assert cache == pytest.approx(weights + (0 + 1 + 2) * entry / 3 + entry)
    assert sums == pytest.approx(weights + 2 * state)


def test_intensity_is_where_the_two_costs_are_equal():
    assert break_even_intensity((30, 5), (10, 9)) == 5
    assert break_even_intensity((10, 5), (30, 9)) == 0
    assert break_even_intensity((10, 9), (30, 5)) == math.inf
