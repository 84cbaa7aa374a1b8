"""Tensor attention and its kernelised version: block sizes, memory, large scores and queries."""

import functools

import pytest
import torch
from comparing import assert_close, compare_functions, random_qkv, with_gradients
from hypothesis import given, settings
from hypothesis import strategies as st

from models import tensor
from models.tensor import TensorAttention
from models.tensor_linear import TensorLinearAttention
from tests.models.reference import tensor_attention, tensor_linear_attention

POSITIONS = pytest.mark.parametrize("position", ["none", "rope"])


def compare(mixer, plain, parts, tolerance):
    plain = functools.partial(plain, position=mixer.position)
    compare_functions(mixer.attend, plain, [x.double() for x in parts], tolerance)


@settings(max_examples=30)
@given(
    st.sampled_from(["none", "rope"]), st.integers(1, 20), st.integers(1, 3), st.integers(1, 3),
    st.sampled_from([2, 4, 6]), st.integers(0, 11),
)  # fmt: skip
def test_blocks_of_any_size_equal_the_definition(position, length, batch, heads, width, held):
    mixer = TensorAttention(heads * width, heads, length, position=position)
    parts = random_qkv(length, batch, heads, width, parts=5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensor, "SCORES_CPU", 2**held)
        # Sines and cosines are float32.
        compare(mixer, tensor_attention, parts, 1e-10 if position == "none" else 1e-5)


@settings(max_examples=15)
@given(
    st.sampled_from(["none", "rope"]), st.integers(1, 20), st.integers(1, 22),
    st.sampled_from([2, 4, 6]),
)  # fmt: skip
def test_chunks_of_any_size_equal_the_definition(position, length, chunk_size, width):
    mixer = TensorLinearAttention(2 * width, 2, length, position=position, chunk_size=chunk_size)
    parts = random_qkv(length, width=width, parts=5)
    compare(mixer, tensor_linear_attention, parts, 1e-12 if position == "none" else 1e-6)


@pytest.mark.parametrize(
    ("mixer", "least_of_scores"),
    [(TensorAttention(8, 2, 60, position="rope"), 60**2),
     (TensorLinearAttention(32, 2, 96, chunk_size=32), 32 * 16**2)],
)  # fmt: skip
def test_memory_for_the_backward_pass_is_linear_in_the_length(mixer, least_of_scores):
    """Scores (T x T) and sums within a chunk (K x K per token) are recomputed."""
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()), lambda x: x):
        mixer(torch.randn(3, mixer.max_len, mixer.dim))
    assert max(kept) <= 3 * 5 * mixer.dim * mixer.max_len < 3 * 2 * least_of_scores


@POSITIONS
def test_scores_in_the_thousands(position):
    parts = random_qkv(30, parts=5)
    parts[:3] = [20 * x for x in parts[:3]]
    mixer = TensorAttention(8, 2, 30, position=position)
    found = with_gradients(mixer.attend, parts, torch.randn_like(parts[0]))
    assert all(x.isfinite().all() for x in found)
    wanted = tensor_attention(*(x.double() for x in parts), position)
    # A score of 4,000 has an error of 2e-4, more with rotated keys.
    assert_close(found[:1], [wanted], 1e-2)


@torch.no_grad()
@POSITIONS
def test_steps_in_small_parts_give_the_same_output(position, monkeypatch):
    """Three rows of different lengths, two heads; a part holds one or two heads."""
    mixer = TensorAttention(8, 2, 20, position=position)
    lengths, x = torch.tensor([12, 1, 5]), torch.randn(3, 12, 8)
    states = [mixer.prefill(x, lengths)[1] for _ in range(3)]
    new = torch.randn(3, 8)
    for state in states:
        state.extent += 1
    whole = mixer.step(new, lengths, states[0])
    for state, held in zip(states[1:], (1, 2 * 13**2), strict=True):
        monkeypatch.setattr(tensor, "SCORES_CPU", held)
        torch.testing.assert_close(mixer.step(new, lengths, state), whole)


@pytest.mark.parametrize("value", [-200.0, -1e4, 300.0])
def test_extreme_queries_give_accurate_averages(value):
    """A scale per query keeps its features above 0."""
    q, k1, k2, v1, v2 = random_qkv(20, parts=5)
    mixer = TensorLinearAttention(8, 2, 20)
    far = mixer.attend(q + value, k1, k2, v1, v2)
    first = k1[:, :, :1], k2[:, :, :1], v1[:, :, :1], v2[:, :, :1]
    alone = mixer.attend(q[:, :, :1] + value, *first)
    assert far.isfinite().all()
    torch.testing.assert_close(alone, v1[:, :, :1] * v2[:, :, :1])
    if value < 0:  # shifting a query by a constant multiplies its features by a constant
        near = -(q.abs() + 0.1).mul(256).round().div(256)
        parts = k1, k2, v1, v2
        assert_close([mixer.attend(near + value, *parts)], [mixer.attend(near, *parts)], 1e-5)
