"""Decayed linear attention against its recurrence: chunks, extreme gates, initial values."""

import math

import numpy as np
import pytest
import torch
from comparing import assert_close, with_gradients
from configured import mixers_of
from configured import settings as settings_of
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from common import UserError
from models import decayed as fast
from models.decayed import ChannelDecay, DecayedAttention, FixedDecay, HeadDecay
from models.delta import DeltaRule
from models.mixer import Role
from tests.models.reference.decayed import recurrence


def inputs(length, width, gates, dtype=torch.float64, key_width=4, value_width=3):
    """q, k, v and log decays, (2, 2, T, ·); gates(shape) gives the last."""
    shapes = [(2, 2, length, n) for n in (key_width, key_width, value_width, width)]
    q, k, v = (torch.randn(shape, dtype=dtype) for shape in shapes[:3])
    return [q, k, v, gates(shapes[3]).to(dtype)]


def compare(given, tolerance):
    direction = torch.randn(given[2].shape, dtype=given[2].dtype)
    found = with_gradients(lambda *xs: fast.decayed_sums(*xs)[0], given, direction)
    exact = [x.double() for x in given]
    wanted = with_gradients(recurrence, exact, direction.double())
    assert_close(found, wanted, tolerance)


def mixed(shape):
    """From gates that forget nothing, exp(-1e-9), to ones that forget all, exp(-1e4)."""
    return -(10 ** torch.empty(shape).uniform_(-9, 4))


def alternating(shape):
    """A gate that forgets all among gates that forget next to nothing."""
    gates = torch.full(shape, -1e-3)
    gates[:, :, ::5] = -1e4
    return gates


GATES = {
    "mixed": mixed,
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
        compare(inputs(length, width, GATES[gates], torch.float32), 1e-5)


@settings(max_examples=35, deadline=None)
@given(
    st.integers(1, 70), st.sampled_from([1, 2, 8, 32]), st.integers(1, 40),
    st.sampled_from(sorted(GATES)),
)  # fmt: skip
def test_any_length_chunk_and_head(length, chunk, key_width, gates):
    before, fast.CHUNK_SIZE = fast.CHUNK_SIZE, chunk
    try:
        # One decay for all channels is a difference of sums of up to 5e4, in float64.
        compare(inputs(length, 1, GATES[gates], key_width=key_width), 1e-11)
        compare(inputs(length, key_width, GATES[gates], key_width=key_width), 1e-12)
    finally:
        fast.CHUNK_SIZE = before


@pytest.mark.parametrize("name", ["retnet", "gla", "mamba2"])
def test_bf16_ends_before_the_sums(name, monkeypatch):
    """q and k are rounded to bfloat16; what is made of them is as exact as float32."""
    calls, sums = [], fast.decayed_sums

    def recorded(*given):
        calls.append((given, sums(*given)))
        return calls[-1][1]

    monkeypatch.setattr(fast, "decayed_sums", recorded)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        y = mixers_of(name, max_len=100)[0](torch.randn(2, 100, 16))
    [((q, k, v, log_decay), (found, _))] = calls
    assert y.dtype == torch.bfloat16
    assert torch.equal(q, q.bfloat16().float()) and torch.equal(k, k.bfloat16().float())
    exact = [x.double() for x in (q, k, v, log_decay)]
    assert_close([found], [recurrence(*exact)], 1e-5)


def test_the_last_state_is_the_sum_of_what_is_left():
    q, k, v, g = inputs(45, 4, GATES["usual"])
    expected = 0
    for t in range(45):
        left = g[:, :, t + 1 :].sum(2).exp()  # (B, H, K)
        expected = expected + (left * k[:, :, t])[..., None] * v[:, :, t, None]
    torch.testing.assert_close(fast.decayed_sums(q, k, v, g)[1], expected)


def test_retnet_decays():
    """31/32, 63/64, ...: RetNet's γ."""
    log_decay, scale = FixedDecay(8, 4)(torch.zeros(3, 8))
    torch.testing.assert_close(
        log_decay.exp()[0, :, 0], torch.tensor([31, 63, 127, 255]) / 2.0 ** torch.arange(5, 9)
    )
    assert (scale == 1).all()


def test_gla_starts_by_forgetting_little():
    decay = ChannelDecay(64, 4)
    log_decay, _ = decay(torch.randn(100, 64))
    assert log_decay.shape == (100, 4, 16)
    assert log_decay.exp().mean().item() == pytest.approx(0.5 ** (1 / 16), abs=0.01)


def test_mamba2_starts_as_published():
    decay = HeadDecay(64, 4000, [1, 16])
    log_decay, dt = decay(torch.zeros(64))
    assert 0.99e-3 < dt.min() < 1.1e-3 and 0.09 < dt.max() < 0.1001
    assert dt.log().mean().item() == pytest.approx(math.log(1e-2), abs=0.1)
    rates = -log_decay / dt
    assert 1 <= rates.min() < 1.1 and 15.9 < rates.max() <= 16.001
    assert rates.mean().item() == pytest.approx(8.5, abs=0.3)


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


@pytest.mark.parametrize("wrong", [None, [16, 1], [-1, 16]])
def test_a_range_that_is_none_is_refused(wrong):
    with pytest.raises(UserError, match=r"A_range=.*: expected \[low, high\]"):
        DecayedAttention(8, 2, 20, decay="head", A_range=wrong)
    with pytest.raises(UserError, match=r"A_range=.*: expected \[low, high\]"):
        DeltaRule(8, 2, 20, forget_gate=True, A_range=wrong)


def test_a_range_without_rates_is_refused():
    with pytest.raises(UserError, match="does not apply to decay=fixed"):
        DecayedAttention(8, 2, 20, decay="fixed", A_range=[1, 16])
    with pytest.raises(UserError, match="does not apply to forget_gate=false"):
        DeltaRule(8, 2, 20, A_range=[1, 16])


def test_rates_of_mamba2_are_exempt_from_weight_decay():
    roles = DecayedAttention(8, 2, 20, decay="head", A_range=[1, 16]).parameter_roles()
    exempt = {name for name, role in roles.items() if role == Role("vector", decays=False)}
    assert exempt == {"decay.A_log", "decay.dt.bias", "skip"}
    assert DecayedAttention(8, 2, 20).parameter_roles().keys() == {"qkv.weight"}
