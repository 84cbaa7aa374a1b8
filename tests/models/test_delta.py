"""The delta rule against its recurrence: chunks, extreme gates, bf16; what its layers track.

Tolerances are relative to the largest magnitude: float32 rounds to 6e-8, a triangular solve and
sums of a few hundred terms leave about a hundred times that.
"""

import itertools

import numpy as np
import pytest
import torch
from comparing import assert_close, compare_functions
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from models.delta import DeltaRule, delta_rule
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


def tracker(letters) -> DeltaRule:
    """A layer with hand-set weights that multiplies permutations, given as one-hot tokens.

    One head, of which keys and values use five channels. A letter is at most four swaps, and the
    swap of i and j is the mirror image in the direction e_i - e_j. The two tokens behind the
    letters, read first, write the identity, e_1 to e_4 and then e_5. The query is 1, ..., 5
    throughout, so the output is this vector permuted.
    """
    width = len(letters) + 2
    layer = DeltaRule(
        width, 1, 1100, num_householder=4, negative_eigenvalues=True, convolution="none"
    ).double()
    weight = torch.zeros(9, width, width)  # q, four keys, four values; channel; token
    beta = torch.full((4, width), -50.0)  # idle
    weight[0, :5] = torch.arange(1.0, 6.0)[:, None]
    for token, letter in enumerate(letters):
        for write, (i, j) in enumerate(swaps(letter)):
            weight[1 + write, [i, j], token] = torch.tensor([1.0, -1.0])
            beta[write, token] = 50.0  # β = 2: a reflection
    for axis in range(5):
        token, write = len(letters) + axis // 4, axis % 4
        weight[[1 + write, 5 + write], axis, token] = 1.0
        beta[write, token] = 0.0  # β = 1: written
    with torch.no_grad():
        layer.qkv.weight.copy_(weight.flatten(0, 1))
        layer.beta.weight.copy_(beta)
        layer.out.weight.copy_(torch.eye(width))
    return layer


def swaps(permutation):
    """Pairs of places which, swapped in turn, lead from 0, ..., n - 1 to the permutation."""
    standing = list(range(len(permutation)))
    for i, wanted in enumerate(permutation):
        if (j := standing.index(wanted)) != i:
            standing[i], standing[j] = standing[j], standing[i]
            yield i, j


@torch.no_grad()
def test_one_delta_product_layer_tracks_s5():
    """A word problem that no fixed-depth transformer solves for all lengths if TC0 is not NC1
    (Siems et al. 2025): 1,000 tokens, without any training, in chunks as in training."""
    letters = list(itertools.permutations(range(5)))
    word = np.random.default_rng(0).integers(120, size=1000)
    layer = tracker(letters)
    x = torch.eye(122).double()[[120, 121, *word]]
    outputs = layer(x[None])[0, 2:, :5]
    query, product = F.normalize(torch.arange(1.0, 6.0).double(), dim=0), range(5)
    for letter, y in zip(word, F.normalize(outputs, dim=-1), strict=True):
        product = [product[i] for i in letters[letter]]
        torch.testing.assert_close(y[product], query, rtol=0, atol=1e-6)
