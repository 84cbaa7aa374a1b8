"""Fast attention against the naive definition: outputs, gradients, dropout, positions, causality.

Tolerances are relative to the largest magnitude. float32 rounds to 6e-8; sums of up to 1,000
terms and a softmax leave about a hundred times that. bf16 rounds to 4e-3 (2^-8): a score of
magnitude 4 is then off by 1e-2, so its weight by 1 %, and output and gradients pass through a few
such roundings: 4e-2. Linear attention rounds inputs and outputs only, 1e-2.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mixer_cases import (
    CASES,
    LENGTHS,
    SOFTMAX,
    assert_close,
    each,
    linear,
    random_qkv,
    sparse,
    with_gradients,
)

from models.linear import feature_map
from tests.models.reference import attention as reference

FLOAT32 = 1e-5
BF16 = 4e-2


def compare(case, length, dtype=torch.float32, tolerance=FLOAT32, position="none", heads=2):
    mixer = case.mixer(max(length, 70), position=position)
    inputs = [x.to(dtype) for x in random_qkv(length, heads=heads, parts=case.parts)]
    direction = torch.randn(inputs[0].shape).to(dtype)
    fast = with_gradients(mixer.attend, inputs, direction)
    assert all(x.dtype == dtype for x in fast)
    naive = with_gradients(
        lambda *parts: case.naive(*parts, position=position),
        [x.double() for x in inputs],
        direction.double(),
    )
    assert_close(fast, naive, tolerance)


@each(CASES)
@pytest.mark.parametrize("length", LENGTHS)
def test_output_and_gradients_equal_the_definition(case, length):
    compare(case, min(length, case.longest))


@each([sparse("blocked", 16), linear("chunked")])
def test_length_1000(case):
    compare(case, 1000, heads=1)


@each(CASES)
@pytest.mark.parametrize("length", [9, 63])
def test_bf16(case, length):
    tolerance = BF16 if case.attended else 1e-2
    compare(case, length, torch.bfloat16, tolerance)


@each(CASES)
def test_rope(case):
    compare(case, 63, position="rope")


def test_rope_scores_depend_on_the_distance_alone():
    q, k = torch.randn(2, 1, 1, 8, dtype=torch.float64).expand(-1, 1, 20, -1)
    scores = reference.rotated(q) @ reference.rotated(k).transpose(-1, -2)  # (1, 20, 20)
    for distance in range(-19, 20):
        diagonal = scores[0].diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal))


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 9), st.integers(1, 3), st.integers(0, 9), st.integers(1, 60), st.integers(0, 40)
)
def test_sparse_forms_agree_for_any_pattern(block, window, summaries, length, longer):
    summaries = min(summaries, block)
    inputs = random_qkv(length, batch=1)
    direction = torch.randn(inputs[0].shape)
    outputs = []
    for implementation in ("dense", "blocked"):
        mixer = sparse(implementation, block, window, summaries).mixer(length + longer)
        outputs.append(with_gradients(mixer.attend, inputs, direction))
    assert_close(outputs[0], outputs[1], FLOAT32)


def attention_matrix(mixer, q, k, seed=None):
    """The weights (B, H, T, T) that `attend` applies: what it makes of the unit vectors.

    With a seed, dropout draws the mask that any other call of `attend` with this seed draws.
    """
    if seed is not None:
        torch.manual_seed(seed)
    return mixer.attend(q, k, torch.eye(q.shape[2]).expand(*q.shape[:2], -1, -1))


@each(SOFTMAX)
def test_pattern_equals_the_set_definition(case):
    length = 63
    q, k, _ = random_qkv(length, batch=1)
    weights = attention_matrix(case.mixer(length).eval(), q, k)[0, 0]
    for i in range(1, length + 1):
        seen = (weights[i - 1] > 0).nonzero().flatten() + 1
        assert seen.tolist() == case.attended(i)


def test_pattern_example_of_equation_6():
    """B = 4, k = c = 1: token 10 sees its window 7..10 and the block ends 4 and 8."""
    assert reference.sparse_set(10, 4, 1, 1) == [4, 7, 8, 9, 10]
    assert reference.sparse_set(10, 4, 1, 2) == [3, 4, 7, 8, 9, 10]
    assert reference.sparse_set(10, 4, 2, 0) == [3, 4, 5, 6, 7, 8, 9, 10]


@each(SOFTMAX)
@pytest.mark.parametrize("length", [9, 63])
def test_dropout_with_the_same_mask(case, length):
    """The mask that the fast form draws is read off its weights and given to the naive form."""
    mixer = case.mixer(length, dropout=0.3).train()
    q, k, v = random_qkv(length)
    pattern = attention_matrix(mixer.eval(), q, k) > 0
    dropped = attention_matrix(mixer.train(), q, k, seed=5)
    keep = (dropped > 0).double() / (1 - 0.3)
    share = keep[pattern].eq(0).double().mean().item()
    assert share == pytest.approx(0.3, abs=4 * (0.21 / pattern.sum().item()) ** 0.5)
    assert not dropped[~pattern].any()

    def fast(*inputs):
        torch.manual_seed(5)
        return mixer.attend(*inputs)

    direction = torch.randn_like(v)
    naive = with_gradients(
        lambda *inputs: case.naive(*inputs, keep=keep),
        [x.double() for x in (q, k, v)],
        direction.double(),
    )
    assert_close(with_gradients(fast, [q, k, v], direction), naive, FLOAT32)


@each([linear("dense"), linear("chunked")])
def test_linear_attention_has_no_weights_to_drop(case):
    mixer = case.mixer(20, dropout=0.5)
    inputs = random_qkv(20)
    assert torch.equal(mixer.train().attend(*inputs), mixer.eval().attend(*inputs))


@each(CASES)
def test_two_halves_share_one_projection(case):
    """`project`, `attend` and `merge` make up `forward`; one token goes the same way as many."""
    mixer = case.mixer(12).eval()
    x = torch.randn(2, 12, 8)
    parts = mixer.project(x)
    assert torch.equal(mixer(x), mixer.merge(mixer.attend(*parts)))
    for many, one in zip(parts, mixer.project_step(x[:, 3], {}), strict=True):
        torch.testing.assert_close(many[:, :, 3], one)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_feature_map_keeps_its_digits_and_its_slope(dtype):
    """elu(x) + 1 has slope 1 at and above 0, and is exp(x) below, down to where float32 ends."""
    x = torch.tensor([-80.0, -20.0, -8.5, -1.0, 0.0, 0.5, 30.0], dtype=dtype, requires_grad=True)
    phi = feature_map(x)
    phi.sum().backward()
    exact = x.detach().double()
    expected = torch.where(exact > 0, exact + 1, exact.exp())
    assert phi.dtype == torch.float32
    torch.testing.assert_close(phi.double(), expected, rtol=1e-6, atol=0)
    slope = torch.where(exact > 0, torch.ones(()).double(), exact.exp())
    torch.testing.assert_close(
        x.grad.double(), slope, rtol=1e-6 if dtype.itemsize > 2 else 1e-2, atol=0
    )


@each([linear("dense"), linear("chunked", 8)])
def test_tiny_features_still_average(case):
    """Weights near e^-70 must cancel in the quotient, and one huge late key must not wash out.

    A guard such as 1e-6 in the denominator, or prefix sums got by subtraction, would fail here.
    """
    q, k, v = random_qkv(40)
    q, k = q - 35, k - 35
    k[:, :, 20:] += 60
    mixer = case.mixer(40)
    # The naive elu + 1 cancels too, at e^-35 even in float64: exp itself is the reference here.
    weights = q.double().exp() @ torch.where(k > 0, k + 1.0, k.exp()).double().transpose(-1, -2)
    expected = (weights.tril() @ v.double()) / weights.tril().sum(-1, keepdim=True)
    assert_close([mixer.attend(q, k, v)], [expected], FLOAT32)


def extreme_inputs(value, position, length=40):
    """q, k, v of which most queries lie near `value`; and the output in float64 without φ's 0."""
    q, k, v = random_qkv(length)
    q[:, :, 1::2] += value
    exact = [x.double() for x in (q, k)]
    # exp itself, shifted: the naive elu + 1 cancels at -37 and exp underflows at -745 in float64.
    shift = exact[0].clamp(max=0).amax(-1, keepdim=True)
    features_q = (exact[0].clamp(max=0) - shift).exp() + exact[0].relu()
    features_k = torch.where(exact[1] > 0, exact[1] + 1, exact[1].exp())
    total = (features_q @ features_k.mT).tril().sum(-1, keepdim=True)
    if position == "rope":
        features_q, features_k = reference.rotated(features_q), reference.rotated(features_k)
    return [q, k, v], (features_q @ features_k.mT).tril() @ v.double() / total


@each([linear("dense"), linear("chunked", 8)])
@pytest.mark.parametrize("position", ["none", "rope"])
@pytest.mark.parametrize("value", [-200.0, -1e4, 300.0])
def test_extreme_queries_still_average(case, position, value):
    """φ(-200) is 0 in float32: without a factor of its own such a query averages nothing."""
    inputs, expected = extreme_inputs(value, position)
    mixer = case.mixer(40, position=position)
    assert_close([mixer.attend(*inputs)], [expected], FLOAT32)


@torch.no_grad()
@pytest.mark.parametrize("position", ["none", "rope"])
@pytest.mark.parametrize("value", [-200.0, -1e4, 300.0])
def test_extreme_queries_still_average_step_by_step(position, value):
    mixer = linear("chunked", 8).mixer(40, position=position)
    inputs, expected = extreme_inputs(value, position)
    given = iter([])
    mixer.project = lambda x: tuple(y[:, :, :1] for y in inputs)
    mixer.project_step = lambda x, tensors: next(given)
    mixer.out = torch.nn.Identity()
    expected = expected.transpose(1, 2).flatten(2)  # (B, T, D)
    first, state = mixer.prefill(torch.zeros(2, 1, 8), torch.tensor([1, 1]))
    assert_close([first[:, 0]], [expected[:, 0]], FLOAT32)
    for t in range(1, 40):
        given = iter([tuple(y[:, :, t] for y in inputs)])
        output = mixer.step(torch.zeros(2, 8), torch.tensor([t, t]), state)
        assert_close([output], [expected[:, t]], FLOAT32)


@each([linear("dense"), linear("chunked", 8)])
def test_gradients_of_extreme_queries(case):
    """Moved by one constant, channels at -200 weigh as they do near 0: the gradients agree too."""
    q, k, v = random_qkv(40)
    q = -(q.abs() + 0.1).mul(256).round().div(256)  # so that q - 200 is exact
    direction = torch.randn_like(v)
    mixer = case.mixer(40)
    near = with_gradients(mixer.attend, [q, k, v], direction)
    far = with_gradients(mixer.attend, [q - 200, k, v], direction)
    assert_close(near, far, FLOAT32)
    assert near[1].abs().max() > 1e-3
