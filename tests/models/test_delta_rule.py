"""The chunked delta rule against its recurrence, and against the formulas of others.

Tolerances are relative to the largest magnitude: float32 rounds to 6e-8, a triangular solve and
sums of a few hundred terms leave about a hundred times that.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mixer_cases import assert_close, with_gradients
from torch.nn import functional as F

from models.delta import delta_rule, delta_rule_step
from tests.models.reference.delta import recurrence

FLOAT32 = 1e-5
GATES = {
    "none": None,
    "usual": lambda shape: F.logsigmoid(torch.randn(shape) + 2),
    "near_one": lambda shape: -1e-6 * torch.rand(shape),
    "near_zero": lambda shape: -60 - 40 * torch.rand(shape),
    # One gate that forgets all beside gates that must keep their digits.
    "both": lambda shape: torch.where(torch.rand(shape) < 0.2, -3e3, -1e-2 * torch.rand(shape)),
    "shut": lambda shape: torch.where(torch.rand(shape) < 0.2, -torch.inf, -0.1),
}


def random_inputs(length, writes, gate="usual", largest_beta=2.0, batch=2, heads=2):
    """q, k of norm 1, v, β and, unless there is no gate, log α; keys 4 wide, values 3."""
    shape = (batch, heads, length)
    q = F.normalize(torch.randn(*shape, 4), dim=-1)
    k = F.normalize(torch.randn(*shape, writes, 4), dim=-1)
    v, beta = torch.randn(*shape, writes, 3), largest_beta * torch.rand(*shape, writes)
    return [q, k, v, beta, *([] if GATES[gate] is None else [GATES[gate](shape)])]


def fast(q, k, v, beta, log_decay=None, chunk_size=8):
    return delta_rule(q, k, v, beta, log_decay, chunk_size)[0]


def believed(q, k, v, beta, log_decay=None):
    decay = torch.ones_like(beta[..., 0]) if log_decay is None else log_decay.exp()
    return recurrence(q, k, v, beta, decay)


def compare(inputs, tolerance=FLOAT32, chunk_size=8):
    direction = torch.randn(*inputs[0].shape[:3], inputs[2].shape[-1])
    found = with_gradients(lambda *x: fast(*x, chunk_size=chunk_size), inputs, direction)
    wanted = with_gradients(believed, [x.double() for x in inputs], direction.double())
    assert_close(found, wanted, tolerance)


@pytest.mark.parametrize("writes", [1, 2, 3])
@pytest.mark.parametrize("length", [1, 7, 8, 9, 40])
def test_output_and_gradients_equal_the_recurrence(writes, length):
    compare(random_inputs(length, writes, "none"))
    compare(random_inputs(length, writes))


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("writes", [1, 2])
def test_extreme_gates(gate, writes):
    compare(random_inputs(37, writes, gate))


@pytest.mark.parametrize("beta", [0.0, 1e-7, 1.0, 2.0])
def test_extreme_strengths_and_repeated_keys(beta):
    """β = 1 replaces, 2 reflects; with one key for all, powers of the overlaps reach 3^31."""
    inputs = random_inputs(70, 1, "none")
    inputs[1] = inputs[1][:, :, :1].expand_as(inputs[1])
    inputs[3] = torch.full_like(inputs[3], beta)
    compare(inputs, chunk_size=32)


def test_a_long_sequence_of_reflections_stays_in_bounds():
    """Eigenvalues of size 1 for 2,000 writes: errors must not grow with the number of chunks."""
    inputs = random_inputs(1000, 2, "none", batch=1, heads=1)
    inputs[3] = torch.full_like(inputs[3], 2.0)
    inputs[2][:, :, 2:] = 0
    with torch.no_grad():
        exact = believed(*(x.double() for x in inputs))
        assert_close([fast(*inputs, chunk_size=32)], [exact], 1e-4)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 40), st.integers(1, 3), st.integers(1, 50), st.sampled_from(sorted(GATES)))
def test_any_length_and_chunk(length, writes, chunk_size, gate):
    inputs = random_inputs(length, writes, gate, batch=1)
    whole = [x.double() for x in inputs]
    torch.testing.assert_close(fast(*whole, chunk_size=chunk_size), believed(*whole))


@pytest.mark.parametrize("gate", ["none", "both"])
def test_steps_lead_to_the_same_outputs_and_state(gate):
    inputs = random_inputs(21, 2, gate)
    outputs, last = delta_rule(*inputs[:4], inputs[4] if len(inputs) > 4 else None, 8)
    state = torch.zeros(2, 2, 4, 3)
    for t in range(21):
        q, k, v, beta, *log_decay = (x[:, :, t] for x in inputs)
        y = delta_rule_step(state, q, k, v, beta, log_decay[0] if log_decay else None)
        assert_close([y], [outputs[:, :, t]], FLOAT32)
    assert_close([state], [last], FLOAT32)


def rank_one_updates(q, k, v, beta, log_decay):
    """flash-linear-attention's naive recurrence of Gated DeltaProduct, in words of our own.

    fla/ops/gated_delta_product/naive.py and, for one write and no gate, fla/ops/delta_rule/naive.py
    keep S (K x V), scale it once a token, add k (β (v - S^T k))^T write by write and read S^T q.
    The latter divides q by √K first, which the norm of the output takes away again.
    """
    state = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1])
    rows = []
    for t in range(q.shape[2]):
        state = state * log_decay[:, :, t, None, None].exp()
        for j in range(k.shape[3]):
            missing = v[:, :, t, j] - torch.einsum("bhkv,bhk->bhv", state, k[:, :, t, j])
            change = beta[:, :, t, j, None] * missing
            state = state + torch.einsum("bhk,bhv->bhkv", k[:, :, t, j], change)
        rows.append(torch.einsum("bhkv,bhk->bhv", state, q[:, :, t]))
    return torch.stack(rows, 2)


@pytest.mark.parametrize("writes", [1, 2])
@pytest.mark.parametrize("gate", ["usual", "near_one", "near_zero"])
def test_agrees_with_flash_linear_attentions_formula(writes, gate):
    inputs = random_inputs(45, writes, gate)
    exact = rank_one_updates(*(x.double() for x in inputs))
    assert_close([fast(*inputs, chunk_size=16)], [exact], 1e-5)


def test_the_future_changes_nothing():
    inputs = [x.double() for x in random_inputs(30, 2)]
    before = fast(*inputs)
    for t in (0, 7, 8, 15, 28):
        changed = [x.clone() for x in inputs]
        for x in changed[:4]:
            x[:, :, t + 1 :] = torch.rand_like(x[:, :, t + 1 :])
        after = fast(*changed)
        torch.testing.assert_close(after[:, :, : t + 1], before[:, :, : t + 1])
        assert not torch.allclose(after[:, :, t + 1], before[:, :, t + 1])
