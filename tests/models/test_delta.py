"""Layers of the delta rule beside those in conf/model: generation, cost, state tracking."""

import functools
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mixer_cases import assert_close
from test_packing import compare as compare_packed

from models.delta import DeltaRule, delta_rule
from models.transformer import Transformer
from tests.models.reference.delta import mix

OPTIONS = {
    "delta_product_of_3": {"num_householder": 3, "negative_eigenvalues": True},
    "gated_delta_product": {
        "num_householder": 2, "negative_eigenvalues": True, "forget_gate": True,
        "A_range": [0, 16], "convolution": "none",
    },
}  # fmt: skip
EACH = pytest.mark.parametrize("name", OPTIONS)
POSITIONS = pytest.mark.parametrize("position", ["none", "rope"])


def mixer(name, dim=16, num_heads=2, max_len=40, **common):
    return DeltaRule(dim, num_heads, max_len, chunk_size=8, **common, **OPTIONS[name])


@EACH
@POSITIONS
def test_the_whole_layer_equals_its_definition(name, position):
    """Options that no file in conf/model has; test_every_model.py holds those that do."""
    layer, x = mixer(name, position=position), torch.randn(2, 33, 16)
    wanted = mix(layer.double(), x.double())
    assert_close([layer.float()(x)], [wanted], 1e-5)


@torch.no_grad()
@EACH
@POSITIONS
def test_generation_equals_reading_the_prefix_again(name, position):
    layer = mixer(name, position=position).eval()
    x = torch.randn(3, 30, 16)
    full = torch.stack([layer(x[:, :t])[:, -1] for t in range(1, 31)], 1)
    lengths = torch.tensor([1, 9, 20])
    outputs, state = layer.prefill(x[:, :20], lengths)
    for row, length in enumerate(lengths):
        assert_close([outputs[row, :length]], [full[row, :length]], 1e-5)
    positions = lengths.clone()
    for _ in range(10):
        y = layer.step(x[torch.arange(3), positions], positions, state)
        assert_close([y], [full[torch.arange(3), positions]], 1e-5)
        positions = positions + 1
    assert state.lengths.tolist() == [11, 19, 30]


def test_a_subclass_that_changes_forward_keeps_its_change_when_packed():
    class Doubled(DeltaRule):
        def forward(self, x):
            return 2 * super().forward(x)

    compare_packed(Doubled(16, 2, 20), [1, 2, 9, 20], 1e-4)


@EACH
def test_flops_are_those_of_the_recurrence(name):
    """A write reads S^T k and adds k u^T, the query reads S^T q: K² multiply-adds a head each."""
    layer = mixer(name)
    n, state = layer.num_householder, 2 * 8 * 8
    terms = layer.flops(9)
    writes_and_read = 9 * 2 * (n * (state + state) + state)
    decay = 0 if layer.decay is None else 9 * state
    kernel = layer.convolution.kernel
    convolution = 0 if kernel is None else 9 * 2 * kernel.numel()
    mixing = sum(count for term, count in terms.items() if term.startswith("mixing/"))
    assert mixing == writes_and_read + decay + convolution


@EACH
def test_roles(name):
    model = Transformer(11, 12, 16, 1, 2, functools.partial(DeltaRule, **OPTIONS[name]))
    prefix = "blocks.0.mixer."
    roles = {k.removeprefix(prefix): r for k, r in model.parameter_roles().items() if prefix in k}
    assert roles["qkv.weight"].parts == 1 + 2 * OPTIONS[name]["num_householder"]
    assert roles["beta.weight"].parts == OPTIONS[name]["num_householder"]
    assert roles["out.weight"].kind == "hidden" and roles["norm.weight"].kind == "vector"
    if OPTIONS[name].get("forget_gate"):
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


def test_a5_is_the_rotations_of_the_icosahedron():
    group = rotations_of_the_icosahedron()
    assert len(group) == 60
    for rotation in group:
        np.testing.assert_allclose(rotation.T @ rotation, np.eye(3), atol=1e-12)
        first, second = two_mirrors(rotation)
        np.testing.assert_allclose(mirror(second) @ mirror(first), rotation, atol=1e-9)


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


@settings(max_examples=20, deadline=None)
@given(st.lists(st.permutations(range(3)), min_size=1, max_size=50))
def test_two_reflections_a_token_compose_permutations_of_three(word):
    """S3: every permutation is at most two swaps, and a swap of i and j mirrors e_i - e_j."""
    keys, strengths = zip(*(swaps(permutation) for permutation in word), strict=True)
    start = [[[1, 0, 0], [0, 1, 0]], [[0, 0, 1], [0, 0, 1]]]  # the identity, in two tokens
    k = torch.tensor([*start, *keys], dtype=torch.float64)[None, None]
    beta = torch.tensor([[1, 1], [1, 0], *strengths], dtype=torch.float64)[None, None]
    v = torch.zeros_like(k)
    v[0, 0, :2] = k[0, 0, :2]
    state = delta_rule(k[:, :, :, 0], k, v, beta, None, 8)[1][0, 0]
    places = list(range(3))
    for permutation in word:
        places = [permutation[place] for place in places]
    expected = torch.zeros(3, 3, dtype=torch.float64)
    for start, place in enumerate(places):
        expected[place, start] = 1
    torch.testing.assert_close(state, expected, rtol=0, atol=1e-12)


def swaps(permutation) -> tuple[list[list[float]], list[float]]:
    """Keys (2, 3) and β (2,) of swaps that, in this order, take i to permutation[i]."""
    pairs = [(0, 1), (0, 2), (1, 2)]
    for first, second in product([None, *pairs], repeat=2):
        places = list(range(3))
        for pair in filter(None, (first, second)):
            places = [pair[1 - pair.index(p)] if p in pair else p for p in places]
        if places == list(permutation):
            break
    keys, strengths = [], []
    for pair in (first, second):
        key = [0.0, 0.0, 0.0]
        key[(pair or (0, 1))[0]], key[(pair or (0, 1))[1]] = 0.5**0.5, -(0.5**0.5)
        keys.append(key)
        strengths.append(2.0 if pair else 0.0)
    return keys, strengths
