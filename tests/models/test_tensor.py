"""Tensor attention against Kronecker products, its T³ definition, and what rope must not do."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mixer_cases import TENSOR, assert_close, random_qkv, with_gradients
from torch.utils.flop_counter import FlopCounterMode
from toy_mixers import TensorAttention as Toy

from common import UserError
from models import tensor
from models.attention import rotary_table
from models.tensor import TensorAttention, query_form, turned_keys
from tasks.match3 import Match3
from tests.models.reference.attention import turned as turned_by
from tests.models.reference.tensor import kronecker_tensor_attention, tensor_attention

POSITIONS = pytest.mark.parametrize("position", ["none", "rope"])


def inputs(length, parts=5, **sizes):
    return [x.double() for x in random_qkv(length, parts=parts, **sizes)]


@POSITIONS
def test_the_plain_form_is_that_of_the_kronecker_products(position):
    parts = [x[0, 0] for x in inputs(5, batch=1, heads=1)]
    literal = kronecker_tensor_attention(*parts, position)
    torch.testing.assert_close(tensor_attention(*parts, position), literal, rtol=1e-12, atol=1e-12)
    mixer = TensorAttention(8, 2, 5, position=position)
    if position == "rope":
        mixer.rotary = exact_table(5)
    found = mixer.attend(*(x[None, None] for x in parts))[0, 0]
    torch.testing.assert_close(found, literal, rtol=1e-12, atol=1e-12)


def exact_table(length, width=4):
    """`rotary_table`, which rounds to float32 at last, in float64."""
    theta = 10000.0 ** (-torch.arange(0, width, 2).double() / width)
    angles = torch.arange(length).double()[:, None] * theta
    table = torch.stack((angles.cos(), angles.sin()))
    torch.testing.assert_close(table.float(), rotary_table(length, width), rtol=0, atol=1e-5)
    return table


def scores(q, k1, k2, first):
    """Of T tokens at positions first, first + 1, ...: (T, T, T), as the mixer computes them."""
    table = exact_table(first + len(q))[:, first:]
    diagonal, beside = query_form(q, table)
    turned = [turned_keys(k, table)[None] for k in (k1, k2)]
    return tensor._scores(tensor._queried(diagonal[None], beside[None], turned[0]), turned[1])[0]


def scores_turned_each_by_its_own_position(q, k1, k2, first):
    """What is right for two factors and wrong for three."""
    turned = [
        torch.stack([turned_by(x, first + t) for t, x in enumerate(part)]) for part in (q, k1, k2)
    ]
    return torch.einsum("ia,ja,ka->ijk", *turned)


def largest_change(form, by):
    """Of any score when the whole sequence moves by so many tokens."""
    q, k1, k2 = (x[0, 0] for x in inputs(9, parts=3))
    return (form(q, k1, k2, 0) - form(q, k1, k2, by)).abs().max().item()


@pytest.mark.parametrize("by", [1, 100])
def test_rope_scores_depend_on_distances_alone(by):
    assert largest_change(scores, by) < 1e-12
    assert largest_change(scores_turned_each_by_its_own_position, by) > 1


@POSITIONS
def test_gradcheck(position):
    mixer = TensorAttention(8, 2, 5, position=position).double()
    leaves = [x.requires_grad_() for x in inputs(4, batch=1)]
    assert torch.autograd.gradcheck(mixer.attend, leaves)


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


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 30), st.integers(1, 80), st.integers(1, 10**5))
def test_blocks_cover_every_query_once(groups, length, most):
    covered = torch.zeros(groups, length)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensor, "SCORES_CPU", most)
        for some, start, stop in tensor._blocks(covered[..., None]):
            covered[some, start:stop] += 1
            count = (some.stop - some.start) * (stop - start)
            assert count * stop**2 <= most or count == 1
    assert (covered == 1).all()


def test_nothing_of_t_squared_is_kept_for_the_backward_pass():
    mixer, length = TensorAttention(8, 2, 60, position="rope"), 60
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()), lambda x: x):
        mixer(torch.randn(3, length, 8))
    assert max(kept) <= 3 * 5 * 8 * length < 3 * 2 * length**2


def test_scale_sqrt():
    mixer = TensorAttention(8, 2, 9, scale="sqrt")
    parts = inputs(9)
    wanted = tensor_attention(*parts, scale=0.5)
    assert_close([mixer.attend(*parts)], [wanted], 1e-10)
    assert (tensor_attention(*parts) - wanted).abs().max() > 1e-3


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


@POSITIONS
def test_the_newcomers_form_is_the_same_mixer(position):
    mixer, toy = (build(8, 2, 20, position=position) for build in (TensorAttention, Toy))
    toy.projections.load_state_dict(mixer.qkv.state_dict())
    toy.out.load_state_dict(mixer.out.state_dict())
    x = torch.randn(2, 17, 8)
    torch.testing.assert_close(mixer(x), toy(x), rtol=1e-5, atol=1e-6)


def test_no_weights_are_dropped():
    mixer = TENSOR.mixer(20, dropout=0.5)
    parts = random_qkv(20, parts=5)
    assert torch.equal(mixer.train().attend(*parts), mixer.eval().attend(*parts))


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


@pytest.mark.parametrize("length", [1, 9, 40])
def test_mixing_flops_equal_explicit_products(length):
    """Each query: its product with K1, i² scores, i² weights times V2, i products with V1."""
    heads, width = 2, 8
    terms = TensorAttention(16, heads, 40).flops(length)

    def rows(i):
        return torch.empty(heads, i, width, device="meta")

    with FlopCounterMode(display=False) as counter:
        for i in range(1, length + 1):
            rows(i) @ rows(i).mT
    assert terms["mixing/scores"] == terms["mixing/values"] == counter.get_total_flops()
    seen = sum(range(1, length + 1))
    assert terms["mixing/queried_keys"] == heads * width * seen
    assert terms["mixing/value_pairs"] == 2 * heads * width * seen
    assert terms["linear/attention_qkv"] == 10 * 16**2 * length


@pytest.mark.parametrize("position", [0, 7])
def test_a_step_costs_the_square_of_what_it_sees(position):
    seen = position + 1
    step = TensorAttention(16, 2, 40).step_flops(position)
    assert step == 12 * 16**2 + 4 * seen**2 * 16 + 3 * seen * 16


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
