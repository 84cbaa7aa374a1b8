"""Kernelised tensor attention against its sum over pairs, and by itself."""

import pytest
import torch
from comparing import assert_close, random_qkv, with_gradients
from hypothesis import given, settings
from hypothesis import strategies as st

from common import UserError
from models.tensor_linear import TensorLinearAttention
from tests.models.reference.tensor_linear import tensor_linear_attention


@settings(max_examples=15, deadline=None)
@given(
    position=st.sampled_from(["none", "rope"]),
    length=st.integers(1, 20),
    chunk_size=st.integers(1, 22),
    width=st.sampled_from([2, 4, 6]),
)
def test_chunks_of_any_size_give_the_definition(position, length, chunk_size, width):
    mixer = TensorLinearAttention(2 * width, 2, length, position=position, chunk_size=chunk_size)
    parts = [x.double() for x in random_qkv(length, width=width, parts=5)]
    direction = torch.randn_like(parts[0])
    found = with_gradients(mixer.attend, parts, direction)
    wanted = with_gradients(lambda *x: tensor_linear_attention(*x, position), parts, direction)
    assert_close(found, wanted, 1e-12 if position == "none" else 1e-6)  # a float32 table


@pytest.mark.parametrize("value", [-200.0, -1e4, 300.0])
def test_extreme_queries_still_average(value):
    """A factor of each query's own keeps its features above 0."""
    q, k1, k2, v1, v2 = random_qkv(20, parts=5)
    mixer = TensorLinearAttention(8, 2, 20)
    far = mixer.attend(q + value, k1, k2, v1, v2)
    first = k1[:, :, :1], k2[:, :, :1], v1[:, :, :1], v2[:, :, :1]
    alone = mixer.attend(q[:, :, :1] + value, *first)
    assert far.isfinite().all()
    torch.testing.assert_close(alone, v1[:, :, :1] * v2[:, :, :1])
    if value < 0:  # moved by one constant, features of one query differ by one factor
        near = -(q.abs() + 0.1).mul(256).round().div(256)
        parts = k1, k2, v1, v2
        assert_close([mixer.attend(near + value, *parts)], [mixer.attend(near, *parts)], 1e-5)


def test_what_is_kept_grows_with_the_length_alone():
    """Sums within a chunk, K x K a token, are computed again in the backward pass."""
    mixer, kept = TensorLinearAttention(32, 2, 96, chunk_size=32), []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()), lambda x: x):
        mixer(torch.randn(3, 96, 32))
    assert max(kept) <= 3 * 96 * 5 * 32 < 3 * 2 * 32 * 16**2


def test_chunk_size_is_checked():
    with pytest.raises(UserError, match="chunk_size=0"):
        TensorLinearAttention(8, 2, 20, chunk_size=0)
