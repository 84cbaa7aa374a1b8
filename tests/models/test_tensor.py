"""Tensor attention in blocks of any size, its memory, large scores; what one head decides."""

import pytest
import torch
from comparing import assert_close, random_qkv, with_gradients
from hypothesis import given, settings
from hypothesis import strategies as st

from common import UserError
from models import tensor
from models.tensor import TensorAttention
from tasks.match3 import Match3
from tests.models.reference.tensor import tensor_attention

POSITIONS = pytest.mark.parametrize("position", ["none", "rope"])


def inputs(length, parts=5, **sizes):
    return [x.double() for x in random_qkv(length, parts=parts, **sizes)]


@settings(max_examples=30, deadline=None)
@given(
    position=st.sampled_from(["none", "rope"]),
    length=st.integers(1, 20),
    batch=st.integers(1, 3),
    heads=st.integers(1, 3),
    width=st.sampled_from([2, 4, 6]),
    held=st.integers(0, 11),
)
def test_blocks_of_any_size_give_the_definition(position, length, batch, heads, width, held):
    mixer = TensorAttention(heads * width, heads, length, position=position)
    parts = inputs(length, batch=batch, heads=heads, width=width)
    direction = torch.randn_like(parts[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensor, "SCORES_CPU", 2**held)
        found = with_gradients(mixer.attend, parts, direction)
    wanted = with_gradients(lambda *x: tensor_attention(*x, position), parts, direction)
    assert_close(found, wanted, 1e-10 if position == "none" else 1e-5)  # a float32 table


def test_nothing_of_t_squared_is_kept_for_the_backward_pass():
    mixer, length = TensorAttention(8, 2, 60, position="rope"), 60
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()), lambda x: x):
        mixer(torch.randn(3, length, 8))
    assert max(kept) <= 3 * 5 * 8 * length < 3 * 2 * length**2


@POSITIONS
def test_scores_in_the_thousands(position):
    parts = [x.float() for x in inputs(30)]
    parts[:3] = [20 * x for x in parts[:3]]
    mixer = TensorAttention(8, 2, 30, position=position)
    found = with_gradients(mixer.attend, parts, torch.randn_like(parts[0]))
    assert all(x.isfinite().all() for x in found)
    wanted = tensor_attention(*(x.double() for x in parts), position)
    assert_close(
        found[:1], [wanted], 1e-2
    )  # a score of 4,000 is known to 2e-4, its turned keys less


@torch.no_grad()
@POSITIONS
def test_steps_in_small_parts_are_the_same(position, monkeypatch):
    """Three rows of two heads of unlike lengths; a part holds one head, or two."""
    mixer = TensorAttention(8, 2, 20, position=position)
    lengths, x = torch.tensor([12, 1, 5]), torch.randn(3, 12, 8)
    states = [mixer.prefill(x, lengths)[1] for _ in range(3)]
    new = torch.randn(3, 8)
    whole = mixer.step(new, lengths, states[0])
    for state, held in zip(states[1:], (1, 2 * 13**2), strict=True):
        monkeypatch.setattr(tensor, "SCORES_CPU", held)
        torch.testing.assert_close(mixer.step(new, lengths, state), whole)


def test_scores_that_cannot_be_held_are_refused():
    longest = int(tensor.MOST_SCORES**0.5)
    with torch.device("meta"):
        TensorAttention(8, 2, longest)
        with pytest.raises(UserError) as refused:
            TensorAttention(8, 2, longest + 1)
    (line,) = str(refused.value).splitlines()
    assert "16,385 tokens" in line and "268,468,225 scores" in line and "tensor_linear" in line


def test_scale_is_checked():
    with pytest.raises(UserError, match="scale='none': expected one of head_dim, sqrt"):
        TensorAttention(8, 2, 20, scale="none")


@pytest.mark.parametrize("size", [3, 8])
def test_one_head_of_four_channels_decides_match3(size):
    """cos(x + y + q), the score of a pair, is a sum of four products of a sine or cosine each.

    The weights concentrate on the best pair, whose values tell its cosine: 1 of a match, else at
    most that of one step of the circle.
    """
    task = Match3(size, modulus=17)
    step = 2 * torch.pi / task.modulus
    mixer = TensorAttention(4, 1, task.max_len)
    sequences = task.draw(0, 0, 0, 60)
    for row in range(60):
        example = task.decode(sequences, row)
        numbers = torch.tensor([int(x) for x in example.prompt[:size]]).double() * step
        asked = torch.tensor(int(example.prompt[-1])).double() * step
        cos, sin = torch.nn.functional.pad(torch.stack((numbers.cos(), numbers.sin())), (0, 2))
        first, second = torch.stack((cos, sin, sin, cos), 1), torch.stack((cos, sin, cos, sin), 1)
        signs = torch.stack((asked.cos(), -asked.cos(), -asked.sin(), -asked.sin()))
        query = (4 * 400 * signs).expand_as(first)
        y = mixer.attend(*(x[None, None] for x in (query, first, second, first, second)))[0, 0, -1]
        found = (y @ signs) > (1 + torch.tensor(step).cos()) / 2
        assert example.answer == (["yes"] if found else ["no"])
