"""Softmax, linear and Taylor attention: sparse patterns, long sequences, dropout, bf16, extremes.

Tolerances are relative to the largest magnitude. float32 rounds to 6e-8; sums of up to 1,000
terms and a softmax increase this about a hundred times. bf16 rounds to 4e-3 (2^-8): a score of
magnitude 4 is then off by 1e-2, its weight by 1 %, and output and gradients go through a few such
roundings: 4e-2. Linear attention rounds only inputs and outputs: 1e-2.
"""

import pytest
import torch
from comparing import assert_close, compare, compare_functions, random_qkv, with_gradients
from hypothesis import given, settings
from hypothesis import strategies as st

from models import taylor
from models.linear import LinearAttention, feature_map
from models.mixer import GenerationState
from models.sparse import SparseAttention
from models.standard import StandardAttention
from models.taylor import TaylorAttention
from models.tensor import TensorAttention
from tests.models import reference

FLOAT32 = 1e-5
FORMS = pytest.mark.parametrize("form", ["dense", "chunked"])
WEIGHTED = pytest.mark.parametrize("form", ["standard", "dense", "blocked"])


def linear(form, position="none"):
    return LinearAttention(8, 2, 40, position=position, implementation=form, chunk_size=8)


def weighted(form, length, block=5, window=2, summaries=3, dropout=0.0):
    """Softmax attention, and the function from token i (from 1) to those it attends to."""
    if form == "standard":
        return StandardAttention(8, 2, length, dropout), reference.standard_set
    pattern = block, window, min(summaries, block)
    mixer = SparseAttention(
        8, 2, length, dropout, block_size=block, window_blocks=window,
        summary_tokens=pattern[2], implementation=form,
    )  # fmt: skip
    return mixer, lambda i: reference.sparse_set(i, *pattern)


def compare_softmax(mixer, attended, inputs, tolerance=FLOAT32):
    plain = lambda q, k, v: reference.softmax_attention(q, k, v, attended)  # noqa: E731
    compare_functions(mixer.attend, plain, inputs, tolerance)


@settings(max_examples=40)
@given(
    st.integers(1, 9), st.integers(1, 3), st.integers(0, 9), st.integers(1, 60), st.integers(0, 40)
)
def test_any_sparse_pattern_equals_the_definition(block, window, summaries, length, longer):
    for form in ("dense", "blocked"):
        pattern = weighted(form, length + longer, block, window, summaries)
        compare_softmax(*pattern, random_qkv(length, batch=1))


def test_pattern_example_of_equation_6():
    """B = 4, k = c = 1: token 10 sees its window 7..10 and the block ends 4 and 8."""
    assert reference.sparse_set(10, 4, 1, 1) == [4, 7, 8, 9, 10]
    assert reference.sparse_set(10, 4, 1, 2) == [3, 4, 7, 8, 9, 10]
    assert reference.sparse_set(10, 4, 2, 0) == [3, 4, 5, 6, 7, 8, 9, 10]


def test_length_1000():
    inputs = random_qkv(1000, batch=1, heads=1)
    compare_softmax(*weighted("blocked", 1000, 16, 1, 1), inputs)
    mixer = LinearAttention(8, 2, 1000, implementation="chunked")
    compare_functions(mixer.attend, reference.linear_attention, inputs, FLOAT32)


@WEIGHTED
def test_bf16_of_softmax(form):
    compare_softmax(*weighted(form, 63), [x.bfloat16() for x in random_qkv(63)], 4e-2)


@FORMS
def test_bf16_of_linear_attention(form):
    inputs = [x.bfloat16() for x in random_qkv(39)]
    compare_functions(linear(form).attend, reference.linear_attention, inputs, 1e-2)


def attention_matrix(mixer, q, k, seed=0):
    """The weights (B, H, T, T) of `attend`: its output for unit vectors as values. Dropout draws
    the same mask as any other call of `attend` with this seed."""
    torch.manual_seed(seed)
    return mixer.attend(q, k, torch.eye(q.shape[2]).expand(*q.shape[:2], -1, -1))


@WEIGHTED
@pytest.mark.parametrize("length", [9, 63])
def test_dropout_with_the_same_mask(form, length):
    """The dropout mask is read from the fast implementation and passed to the plain one."""
    mixer, attended = weighted(form, length, dropout=0.3)
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

    plain = lambda q, k, v: reference.softmax_attention(q, k, v, attended, keep)  # noqa: E731
    compare_functions(fast, plain, [q, k, v], FLOAT32)


@pytest.mark.parametrize("build", [LinearAttention, TensorAttention])
def test_dropout_leaves_attention_without_a_softmax_over_tokens_unchanged(build):
    mixer = build(8, 2, 20, dropout=0.5)
    inputs = random_qkv(20, parts=mixer.parts)
    assert torch.equal(mixer.train().attend(*inputs), mixer.eval().attend(*inputs))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_feature_map_and_its_gradient_are_accurate(dtype):
    x = torch.tensor([-80.0, -20.0, -8.5, -1.0, 0.0, 0.5, 30.0], dtype=dtype, requires_grad=True)
    phi = feature_map(x)
    phi.sum().backward()
    exact = x.detach().double()
    expected = torch.where(exact > 0, exact + 1, exact.exp())
    assert phi.dtype == torch.float32
    torch.testing.assert_close(phi.double(), expected, rtol=1e-6, atol=0)
    slope = torch.where(exact > 0, torch.ones(()).double(), exact.exp())
    rtol = 1e-6 if dtype == torch.float32 else 1e-2
    torch.testing.assert_close(x.grad.double(), slope, rtol=rtol, atol=0)


def extreme_inputs(case, position, length=40):
    """q, k, v with every other query near the number `case`, or with features near e^-35 and huge
    late keys; and the output in float64, without underflow of φ."""
    q, k, v = random_qkv(length)
    if case == "tiny features":
        q, k = q - 35, k - 35
        k[:, :, 20:] += 60
    else:
        q[:, :, 1::2] += case
    exact = [x.double() for x in (q, k)]
    # Shifted exp: in float64, elu + 1 cancels at -37 and exp underflows at -745.
    shift = exact[0].clamp(max=0).amax(-1, keepdim=True)
    features_q = (exact[0].clamp(max=0) - shift).exp() + exact[0].relu()
    features_k = torch.where(exact[1] > 0, exact[1] + 1, exact[1].exp())
    total = (features_q @ features_k.mT).tril().sum(-1, keepdim=True)
    if position == "rope":
        features_q, features_k = reference.rotated(features_q), reference.rotated(features_k)
    return [q, k, v], (features_q @ features_k.mT).tril() @ v.double() / total


def step_by_step(mixer, inputs):
    """The output of `attend`, one token at a time from an empty state."""
    none = torch.tensor([0, 0])
    state = GenerationState(mixer.state_after(none, *inputs), 0)
    tokens = zip(*(x.unbind(2) for x in inputs), strict=True)  # q, k, v (B, H, K) each
    rows = [mixer.attend_step(none + t, state, *token) for t, token in enumerate(tokens)]
    return torch.stack(rows, 2)


@torch.no_grad()
@pytest.mark.parametrize("form", ["dense", "chunked", "steps"])
@pytest.mark.parametrize("position", ["none", "rope"])
@pytest.mark.parametrize("case", [-200.0, -1e4, 300.0, "tiny features"])
def test_extreme_features_give_accurate_averages(form, position, case):
    """φ(-200) is 0 in float32, so each query needs its own scale. Weights near e^-70 must cancel in
    the quotient, also beside a huge late key: an epsilon such as 1e-6 in the denominator, or prefix
    sums computed by subtraction, would fail."""
    inputs, expected = extreme_inputs(case, position)
    mixer = linear("chunked" if form == "steps" else form, position)
    found = step_by_step(mixer, inputs) if form == "steps" else mixer.attend(*inputs)
    assert_close([found], [expected], FLOAT32)


@FORMS
def test_gradients_of_extreme_queries(form):
    """Shifting negative queries by a constant changes neither output nor gradients."""
    q, k, v = random_qkv(40)
    q = -(q.abs() + 0.1).mul(256).round().div(256)  # so that q - 200 is exact
    direction = torch.randn_like(v)
    mixer = linear(form)
    near = with_gradients(mixer.attend, [q, k, v], direction)
    far = with_gradients(mixer.attend, [q - 200, k, v], direction)
    assert_close(near, far, FLOAT32)
    assert near[1].abs().max() > 1e-3


@pytest.mark.parametrize("length", [1, 8, 9, 40])
@pytest.mark.parametrize("position", ["none", "rope"])
def test_chunks_of_taylor_equal_the_reference(monkeypatch, length, position):
    monkeypatch.setattr(taylor, "CHUNK_SIZE", 8)
    x = torch.randn(2, length, 16, dtype=torch.float64)
    own = TaylorAttention(16, 2, 40, feature_dim=4, position=position).double()
    compare(own, x, 1e-12 if position == "none" else 1e-6)


@pytest.mark.parametrize("size", [1.0, 30.0])
def test_chunks_of_taylor_in_float32(monkeypatch, size):
    """Weights are at least 1/2 for any score, so sums over features stay accurate."""
    monkeypatch.setattr(taylor, "CHUNK_SIZE", 8)
    own, x = TaylorAttention(16, 2, 40, feature_dim=4), size * torch.randn(2, 40, 16)
    assert_close([own(x)], [own.double()(x.double())], 1e-5)


def test_taylor_of_small_scores_is_softmax():
    """The series differs from exp(s) by about s³ / 6."""
    own = TaylorAttention(16, 2, 20, feature_dim=8).double()
    q, k, v = (0.05 * torch.randn(1, 2, 20, 8, dtype=torch.float64) for _ in range(3))
    softmax = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert (own.attend(q, k, v) - softmax).abs().max() < 1e-6
