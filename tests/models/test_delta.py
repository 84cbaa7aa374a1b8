"""The delta rule against its recurrence: chunks, extreme gates, bf16; what its layers track.

Tolerances are relative to the largest magnitude: float32 rounds to 6e-8, a triangular solve and
sums of a few hundred terms leave about a hundred times that.
"""

import numpy as np
import pytest
import torch
from comparing import assert_close, compare_packed, with_gradients
from configured import mixers_of
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from models import delta
from models.delta import DeltaRule, delta_rule
from models.recurrent import recurrence_step
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


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("writes", [1, 2, 3])
def test_output_and_gradients_equal_the_recurrence(gate, writes):
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
        k, v, beta = (x.transpose(1, 2) for x in (k, v, beta))
        decay = log_decay[0][..., None] if log_decay else None
        y = recurrence_step(state, q, k, v, beta, decay)
        assert_close([y], [outputs[:, :, t]], FLOAT32)
    assert_close([state], [last], FLOAT32)


@pytest.mark.parametrize("name", ["delta_net", "gated_delta_net", "delta_product"])
def test_bf16_ends_before_the_delta_rule(name, monkeypatch):
    """v is rounded to bfloat16; what is made of q, k and v is as exact as float32."""
    calls = []

    def recorded(*given):
        calls.append((given, delta_rule(*given)))
        return calls[-1][1]

    monkeypatch.setattr(delta, "delta_rule", recorded)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        output = mixers_of(name, max_len=100)[0](torch.randn(2, 100, 16))
    [((q, k, v, beta, log_decay, _), (y, _))] = calls
    assert output.dtype == torch.bfloat16
    assert torch.equal(v, v.bfloat16().float())
    assert_close([k.square().sum(-1)], [torch.ones(k.shape[:-1])], 1e-6)
    exact = [x if x is None else x.double() for x in (q, k, v, beta, log_decay)]
    assert_close([y], [believed(*exact)], 1e-5)


def test_a_subclass_that_changes_forward_keeps_its_change_when_packed():
    class Doubled(DeltaRule):
        def forward(self, x):
            return 2 * super().forward(x)

    compare_packed(Doubled(16, 2, 20), [1, 2, 9, 20], 1e-4)


def test_roles():
    options = {"num_householder": 2, "forget_gate": True, "A_range": [0, 16]}
    roles = DeltaRule(16, 2, 20, **options).parameter_roles()
    assert (roles["qkv.weight"].parts, roles["beta.weight"].parts) == (5, 2)
    assert not roles["decay.A_log"].decays and not roles["decay.dt.bias"].decays


# State tracking


def rotations_of_the_icosahedron() -> np.ndarray:
    """Its 60 rotations (60, 3, 3), a copy of A5: the closure of two that generate them."""
    golden = (1 + 5**0.5) / 2
    fifth = 0.5 * np.array(
        [[golden - 1, -golden, 1], [golden, 1, golden - 1], [-1, golden - 1, golden]]
    )  # a fifth of a turn about a vertex
    half = np.diag([-1.0, -1.0, 1.0])
    found = [np.eye(3)]
    for element in found:
        for generator in (fifth, half):
            new = element @ generator
            if not any(np.allclose(new, known) for known in found):
                found.append(new)
    return np.stack(found)


def two_mirrors(rotation: np.ndarray) -> np.ndarray:
    """Normals (2, 3) of mirrors with rotation = second mirror · first mirror.

    Both hold the axis, and lie half the angle apart; the identity is one mirror twice.
    """
    values, vectors = np.linalg.eig(rotation)
    axis = np.real(vectors[:, np.argmin(abs(values - 1))])
    first = np.cross(axis, [0.3, 0.5, 0.7])
    first /= np.linalg.norm(first)
    second = first + rotation @ first  # the turned mirror, half way
    if np.linalg.norm(second) < 1e-6:  # half a turn: at right angles
        second = np.cross(axis, first)
    return np.stack([first, second / np.linalg.norm(second)])


def mirror(normal: np.ndarray) -> np.ndarray:
    return np.eye(3) - 2 * np.outer(normal, normal)


def inverse_silu(y: np.ndarray) -> np.ndarray:
    """x with SiLU(x) = y, for |y| < 0.2, by Newton's method from 2y."""
    x = 2 * y
    for _ in range(60):
        sigmoid = 1 / (1 + np.exp(-x))
        x = x - (x * sigmoid - y) / (sigmoid * (1 + x * (1 - sigmoid)))
    return x


def tracker(group: np.ndarray) -> DeltaRule:
    """A DeltaProduct layer with hand-set weights that multiplies elements of A5.

    One head of 64 channels, of which keys and values use three. Tokens 0 ... 59 are the elements,
    two mirrors each; 60 and 61, read first, write the identity, e_1 and e_2, then e_3 twice (once
    written, a value is not corrected again). The query is one fixed direction, so the output is the
    turned direction, another one for each element.
    """
    layer = DeltaRule(64, 1, 1100, num_householder=2, negative_eigenvalues=True).double()
    weight = np.zeros((5, 64, 64))  # q, two keys, two values; channel; token
    weight[0, :3] = inverse_silu(0.1 * np.array([[0.1], [0.5], [0.86]]))
    for number, rotation in enumerate(group):
        weight[1:3, :3, number] = inverse_silu(0.1 * two_mirrors(rotation))
    for token, axes in ((60, (0, 1)), (61, (2, 2))):
        for write, axis in enumerate(axes):
            weight[1 + write, axis, token] = inverse_silu(np.array(0.1))
            weight[3 + write, axis, token] = inverse_silu(np.array(0.1))
    gates = np.full((2, 64), 50.0)  # β = 2
    gates[:, 60:] = 0.0  # β = 1
    with torch.no_grad():
        layer.qkv.weight.copy_(torch.tensor(weight.reshape(320, 64)))
        layer.beta.weight.copy_(torch.tensor(gates))
        layer.out.weight.copy_(torch.eye(64))
        layer.convolution.kernel.zero_()[:, -1] = 1.0
    return layer


def test_one_delta_product_layer_tracks_a5():
    """A word problem that no fixed-depth transformer solves for all lengths if TC0 is not NC1.

    Siems et al. (2025): two reflections are a rotation, and A5 is the rotations of the icosahedron.
    1,000 tokens, without any training, in chunks as in training.
    """
    group = rotations_of_the_icosahedron()
    word = np.random.default_rng(0).integers(60, size=1000)
    layer = tracker(group)
    x = torch.eye(64, dtype=torch.float64)[torch.tensor([60, 61, *word])]
    with torch.no_grad():
        outputs = layer(x[None])[0, 2:, :3].numpy()
    outputs /= np.linalg.norm(outputs, axis=-1, keepdims=True)
    start = np.array([0.1, 0.5, 0.86])
    candidates = (group.transpose(0, 2, 1) @ start) / np.linalg.norm(start)  # R^T q
    product_so_far = np.eye(3)
    for t, letter in enumerate(word):
        product_so_far = group[letter] @ product_so_far
        true = np.argmin([abs(product_so_far - r).max() for r in group])
        distances = np.linalg.norm(candidates - outputs[t], axis=-1)
        assert distances.argmin() == true and distances[true] < 1e-6
        assert np.sort(distances)[1] > 0.1
        product_so_far = group[true]
