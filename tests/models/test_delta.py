"""The delta rule against its recurrence: chunks, extreme gates.

Tolerances are relative to the largest magnitude: float32 rounds to 6e-8, a triangular solve and
sums of a few hundred terms leave about a hundred times that.
"""

import pytest
import torch
from comparing import assert_close, compare_functions
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from models.delta import delta_rule
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


def believed(q, k, v, beta, log_decay=None):
    decay = torch.ones_like(beta[..., 0]) if log_decay is None else log_decay.exp()
    return recurrence(q, k, v, beta, decay)


def compare(inputs, tolerance=FLOAT32, chunk_size=8):
    """Outputs, last state and gradients."""

    def fast(q, k, v, beta, log_decay=None):
        return delta_rule(q, k, v, beta, log_decay, chunk_size)

    compare_functions(fast, believed, inputs, tolerance)


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("writes", [1, 2, 3])
def test_output_state_and_gradients_equal_the_recurrence(gate, writes):
    for length in (1, 7, 8, 9, 37):
        compare(random_inputs(length, writes, gate))


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
        assert_close(delta_rule(*inputs, None, 32), exact, 1e-4)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 40), st.integers(1, 3), st.integers(1, 50), st.sampled_from(sorted(GATES)))
def test_any_length_and_chunk(length, writes, chunk_size, gate):
    inputs = random_inputs(length, writes, gate, batch=1)
    compare([x.double() for x in inputs], 1e-9, chunk_size)
