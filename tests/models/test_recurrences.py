"""Decayed sums and the delta rule, padded and packed, compared with one plain recurrence.

Tolerances are relative to the largest magnitude: float32 rounds to 6e-8; a triangular solve and
sums of a few hundred terms increase this about a hundred times.
"""

import math

import numpy as np
import pytest
import torch
from comparing import assert_close, compare_functions
from configured import mixers_of
from configured import settings as settings_of
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from models import decayed, delta
from models.decayed import ChannelDecay, HeadDecay
from models.delta import delta_rule
from models.packing import PackedRecurrence, Packing
from tests.models.reference import recurrence

FLOAT32 = 1e-5
FINITE = {  # logarithms of gates
    "zero": torch.zeros,
    "usual": lambda shape: -torch.rand(shape),
    # From gates that forget nothing, exp(-1e-9), to gates that forget everything, exp(-1e4).
    "mixed": lambda shape: -(10 ** torch.empty(shape).uniform_(-9, 4)),
    "all": lambda shape: torch.full(shape, -1e4),
    "near_one": lambda shape: -1e-6 * torch.rand(shape),
    "near_zero": lambda shape: -60 - 40 * torch.rand(shape),
    # Some gates forget everything; the others must stay accurate.
    "some": lambda shape: torch.where(torch.rand(shape) < 0.2, -1e4, -1e-3),
}
GATES = {
    **FINITE,
    "none": lambda shape: None,
    "shut": lambda shape: torch.where(torch.rand(shape) < 0.2, -torch.inf, -0.1),
}


def plain_sums(q, k, v, log_decay):
    return recurrence(q, k.unsqueeze(3), v.unsqueeze(3), log_decay)


def plain_rule(q, k, v, beta, log_decay=None):
    return recurrence(q, k, v, None if log_decay is None else log_decay[..., None], beta)


def plain_packed(q, k, v, strengths, log_decay, lengths):
    """One sequence at a time."""
    given = [None if x is None else x.split(lengths) for x in (q, k, v, log_decay, strengths)]
    heads = -2, -2, -2, -2, -1
    rows = []
    for number in range(len(lengths)):
        own = [x and x[number].movedim(head, 0)[None] for x, head in zip(given, heads, strict=True)]
        rows.append(recurrence(*own)[0][0].transpose(0, 1))
    return torch.cat(rows)


def compare_sums(length, width, gates, tolerance, key_width=4, dtype=torch.float64):
    """Compare outputs, last state and gradients for q, k, v and log decays (2, 2, T, ·)."""
    shapes = [(2, 2, length, n) for n in (key_width, key_width, 3, width)]
    inputs = [*(torch.randn(shape) for shape in shapes[:3]), FINITE[gates](shapes[3])]
    compare_functions(decayed.decayed_sums, plain_sums, [x.to(dtype) for x in inputs], tolerance)


@pytest.mark.parametrize("gates", FINITE)
@pytest.mark.parametrize("width", [1, 4])
def test_sums_in_float32_at_extreme_gates(width, gates):
    """A log decay of 1e-3 stays accurate next to sums of 1e4."""
    for length in (1, 31, 32, 33, 100):
        compare_sums(length, width, gates, FLOAT32, dtype=torch.float32)


@settings(max_examples=35)
@given(
    st.integers(1, 70), st.sampled_from([1, 2, 8, 32]), st.integers(1, 40),
    st.sampled_from(sorted(FINITE)),
)  # fmt: skip
def test_sums_of_any_length_chunk_and_head(length, chunk, key_width, gates):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decayed, "CHUNK_SIZE", chunk)
        # One decay for all channels is computed as a difference of float64 sums of up to 5e4.
        compare_sums(length, 1, gates, 1e-11, key_width)
        compare_sums(length, key_width, gates, 1e-11, key_width)


def rule_inputs(length, writes, gate="usual", batch=2, heads=2):
    """q and k of norm 1 and width 4, v of width 3, β up to 2 and, if there is a gate, log α."""
    shape = (batch, heads, length)
    q = F.normalize(torch.randn(*shape, 4), dim=-1)
    k = F.normalize(torch.randn(*shape, writes, 4), dim=-1)
    v, beta = torch.randn(*shape, writes, 3), 2 * torch.rand(*shape, writes)
    return [q, k, v, beta, *([] if gate == "none" else [GATES[gate](shape)])]


def compare_rule(inputs, tolerance=FLOAT32, chunk_size=8):
    """Compare outputs, last state and gradients."""
    fast = lambda q, k, v, beta, g=None: delta_rule(q, k, v, beta, g, chunk_size)  # noqa: E731
    compare_functions(fast, plain_rule, inputs, tolerance)


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("writes", [1, 2, 3])
def test_delta_rule_equals_the_recurrence(gate, writes):
    for length in (1, 7, 8, 9, 37):
        compare_rule(rule_inputs(length, writes, gate))


@pytest.mark.parametrize("beta", [0.0, 1e-7, 1.0, 2.0])
def test_extreme_strengths_and_repeated_keys(beta):
    """β = 1 replaces, β = 2 reflects; with equal keys, powers of the overlaps reach 3^31."""
    inputs = rule_inputs(70, 1, "none")
    inputs[1] = inputs[1][:, :, :1].expand_as(inputs[1])
    inputs[3] = torch.full_like(inputs[3], beta)
    compare_rule(inputs, chunk_size=32)


def test_errors_stay_bounded_over_many_reflections():
    """Eigenvalues of magnitude 1 for 2,000 writes: errors do not grow with the number of chunks."""
    inputs = rule_inputs(1000, 2, "none", batch=1, heads=1)
    inputs[3] = torch.full_like(inputs[3], 2.0)
    inputs[2][:, :, 2:] = 0
    with torch.no_grad():
        exact = plain_rule(*(x.double() for x in inputs))
        assert_close(delta_rule(*inputs, None, 32), exact, 1e-4)


@settings(max_examples=40)
@given(st.integers(1, 40), st.integers(1, 3), st.integers(1, 50), st.sampled_from(sorted(GATES)))
def test_delta_rule_of_any_length_and_chunk(length, writes, chunk_size, gate):
    inputs = rule_inputs(length, writes, gate, batch=1)
    compare_rule([x.double() for x in inputs], 1e-9, chunk_size)


@settings(max_examples=35)
@given(
    st.lists(st.integers(1, 24), min_size=1, max_size=4).map(sorted), st.integers(1, 33),
    st.integers(1, 3), st.booleans(), st.sampled_from(sorted(GATES)), st.booleans(),
)  # fmt: skip
def test_packed_sequences_equal_the_recurrence(lengths, width, writes, corrects, gate, by_channel):
    torch.manual_seed(0)
    q = torch.randn(sum(lengths), 2, width)
    k, v = torch.randn(2, sum(lengths), writes, 2, width)
    strengths = 2 * torch.rand(sum(lengths), writes, 2) if corrects else None
    log_decay = GATES[gate](q.shape if by_channel else (*q.shape[:2], 1))
    packing, inputs = Packing(np.array(lengths)), [q, F.normalize(k, dim=-1), v]
    packed = lambda *given: PackedRecurrence.apply(*given, packing)  # noqa: E731
    plain = lambda *given: plain_packed(*given, lengths)  # noqa: E731
    compare_functions(packed, plain, [*inputs, strengths, log_decay], 2e-5)


def test_filler_is_zero_and_gets_no_gradient():
    packing = Packing(np.array([2, 3]), size_step=8)
    q, k, v = torch.randn(3, 8, 1, 4)
    leaves = [x.detach().requires_grad_() for x in (q, k[:, None], v[:, None])]
    y = PackedRecurrence.apply(*leaves, None, None, packing)
    y.sum().backward()
    assert (y[5:] == 0).all() and all((x.grad[5:] == 0).all() for x in leaves)
    assert all((x.grad[:5] != 0).any() for x in leaves)


@torch.no_grad()
@pytest.mark.parametrize("name", ["retnet", "gla", "mamba2"])
def test_decayed_sums_run_in_float32_under_autocast(name, monkeypatch):
    """q and k are rounded to bfloat16; everything computed from them has float32 accuracy."""
    (q, k, v, log_decay), found = under_bf16(name, decayed, "decayed_sums", monkeypatch)
    assert torch.equal(q, q.bfloat16().float()) and torch.equal(k, k.bfloat16().float())
    assert_close(found, plain_sums(*(x.double() for x in (q, k, v, log_decay))), FLOAT32)


@torch.no_grad()
@pytest.mark.parametrize("name", ["delta_net", "gated_delta_net", "delta_product"])
def test_delta_rule_runs_in_float32_under_autocast(name, monkeypatch):
    """v is rounded to bfloat16; everything computed from q, k and v has float32 accuracy."""
    (q, k, v, beta, log_decay, _), found = under_bf16(name, delta, "delta_rule", monkeypatch)
    assert torch.equal(v, v.bfloat16().float())
    assert_close([k.square().sum(-1)], [torch.ones(k.shape[:-1])], 1e-6)
    exact = plain_rule(*(x if x is None else x.double() for x in (q, k, v, beta, log_decay)))
    assert_close(found, exact, FLOAT32)


def under_bf16(name, module, function, monkeypatch):
    """Inputs and outputs of this function in one forward pass under autocast."""
    calls, plain = [], getattr(module, function)
    recorded = lambda *given: calls.append((given, plain(*given))) or calls[-1][1]  # noqa: E731
    monkeypatch.setattr(module, function, recorded)
    with torch.autocast("cpu", torch.bfloat16):
        y = mixers_of(name, max_len=100)[0](torch.randn(2, 100, 16))
    assert y.dtype == torch.bfloat16
    (call,) = calls
    return call


def test_gla_forgets_little_at_initialisation():
    decay = ChannelDecay(64, 4)
    log_decay, _ = decay(torch.randn(100, 64))
    assert log_decay.shape == (100, 4, 16)
    assert log_decay.exp().mean().item() == pytest.approx(0.5 ** (1 / 16), abs=0.01)


@torch.no_grad()
@pytest.mark.parametrize(("name", "low"), [("mamba2", 1), ("gated_delta_net", 0)])
def test_initial_half_lives_match_the_published_distributions(name, low):
    """Half-lives, ln 2 over a head's mean of -log a, of tokens after LayerNorm.

    The published distributions are sampled again here; for Mamba-2 their median is 8.2 tokens.
    Xavier initialisation of W, which has few rows, gives larger weights and a median of 4.5.
    """
    A_range = settings_of(name).mixer["A_range"]
    made = [HeadDecay(32, 4, A_range) for _ in range(1500)]
    x = F.layer_norm(torch.randn(200, 32), (32,))
    moved = torch.stack([decay.dt(x) - decay.dt.bias for decay in made])
    assert moved.std().item() == pytest.approx(3**-0.5, abs=0.02)
    forgotten = torch.cat([-decay(x)[0].mean(0).flatten() for decay in made])  # (6000,)
    rng = np.random.default_rng(0)
    rates, steps = rng.uniform(low, 16, 6000), np.exp(rng.uniform(*np.log([1e-3, 1e-1]), 6000))
    w = rng.uniform(-(32**-0.5), 32**-0.5, (32, 6000))
    published = rates * np.log1p(np.expm1(steps) * np.exp(x.numpy() @ w)).mean(0)
    shares = [0.1, 0.25, 0.5, 0.75, 0.9]
    found = np.quantile(math.log(2) / forgotten, shares)
    np.testing.assert_allclose(found, np.quantile(math.log(2) / published, shares), rtol=0.12)
