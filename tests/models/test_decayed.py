"""Decayed linear attention against its recurrence: chunks, extreme gates, initial values; bf16 in
it and in the delta rule."""

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
from tests.models.reference.decayed import recurrence
from tests.models.reference.delta import recurrence as delta_recurrence


def compare(length, width, gates, tolerance, key_width=4, dtype=torch.float64):
    """q, k, v and log decays, (2, 2, T, ·): outputs, last state and gradients."""
    shapes = [(2, 2, length, n) for n in (key_width, key_width, 3, width)]
    inputs = [*(torch.randn(shape) for shape in shapes[:3]), GATES[gates](shapes[3])]
    compare_functions(decayed.decayed_sums, recurrence, [x.to(dtype) for x in inputs], tolerance)


def alternating(shape):
    """A gate that forgets all among gates that forget next to nothing."""
    gates = torch.full(shape, -1e-3)
    gates[:, :, ::5] = -1e4
    return gates


GATES = {
    # From gates that forget nothing, exp(-1e-9), to ones that forget all, exp(-1e4).
    "mixed": lambda shape: -(10 ** torch.empty(shape).uniform_(-9, 4)),
    "alternating": alternating,
    "zero": torch.zeros,
    "all": lambda shape: torch.full(shape, -1e4),
    "usual": lambda shape: -torch.rand(shape),
}


@pytest.mark.parametrize("gates", GATES)
@pytest.mark.parametrize("width", [1, 4])
def test_float32_at_extreme_gates(width, gates):
    """No digits are lost to sums of 1e4 beside a gate of 1e-3."""
    for length in (1, 31, 32, 33, 100):
        compare(length, width, gates, 1e-5, dtype=torch.float32)


@settings(max_examples=35, deadline=None)
@given(
    st.integers(1, 70), st.sampled_from([1, 2, 8, 32]), st.integers(1, 40),
    st.sampled_from(sorted(GATES)),
)  # fmt: skip
def test_any_length_chunk_and_head(length, chunk, key_width, gates):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decayed, "CHUNK_SIZE", chunk)
        # One decay for all channels is a difference of sums of up to 5e4, in float64.
        compare(length, 1, gates, 1e-11, key_width)
        compare(length, key_width, gates, 1e-12, key_width)


@torch.no_grad()
@pytest.mark.parametrize("name", ["retnet", "gla", "mamba2"])
def test_bf16_ends_before_the_sums(name, monkeypatch):
    """q and k are rounded to bfloat16; what is made of them is as exact as float32."""
    (q, k, v, log_decay), found = under_bf16(name, decayed, "decayed_sums", monkeypatch)
    assert torch.equal(q, q.bfloat16().float()) and torch.equal(k, k.bfloat16().float())
    assert_close(found, recurrence(*(x.double() for x in (q, k, v, log_decay))), 1e-5)


@torch.no_grad()
@pytest.mark.parametrize("name", ["delta_net", "gated_delta_net", "delta_product"])
def test_bf16_ends_before_the_delta_rule(name, monkeypatch):
    """v is rounded to bfloat16; what is made of q, k and v is as exact as float32."""
    (q, k, v, beta, log_decay, _), found = under_bf16(name, delta, "delta_rule", monkeypatch)
    assert torch.equal(v, v.bfloat16().float())
    assert_close([k.square().sum(-1)], [torch.ones(k.shape[:-1])], 1e-6)
    decay = torch.ones_like(beta[..., 0]) if log_decay is None else log_decay.exp()
    exact = delta_recurrence(*(x.double() for x in (q, k, v, beta, decay)))
    assert_close(found, exact, 1e-5)


def under_bf16(name, module, function, monkeypatch):
    """What one forward pass under autocast gives this function and gets from it."""
    calls, plain = [], getattr(module, function)
    recorded = lambda *given: calls.append((given, plain(*given))) or calls[-1][1]  # noqa: E731
    monkeypatch.setattr(module, function, recorded)
    with torch.autocast("cpu", torch.bfloat16):
        y = mixers_of(name, max_len=100)[0](torch.randn(2, 100, 16))
    assert y.dtype == torch.bfloat16
    (call,) = calls
    return call


def test_gla_starts_by_forgetting_little():
    decay = ChannelDecay(64, 4)
    log_decay, _ = decay(torch.randn(100, 64))
    assert log_decay.shape == (100, 4, 16)
    assert log_decay.exp().mean().item() == pytest.approx(0.5 ** (1 / 16), abs=0.01)


@torch.no_grad()
@pytest.mark.parametrize(("name", "low"), [("mamba2", 1), ("gated_delta_net", 0)])
def test_how_long_the_first_weights_remember(name, low):
    """Half-lives, ln 2 over a head's mean of -log a, of tokens after LayerNorm.

    Beside the published distributions, drawn here once more: for Mamba-2 a median of 8.2 tokens.
    A W with Xavier's values, larger since it has so few rows, leaves 4.5.
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
