"""The mixers of the delta rule: generation, packing, precision, roles, cost, state tracking."""

import functools
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mixer_cases import assert_close
from test_packing import compare as compare_packed

from models import reference_delta
from models.delta import DeltaRule
from models.exact import require_exact
from models.transformer import Transformer

OPTIONS = {
    "delta_net": {},
    "gated_delta_net": {"forget_gate": True, "output_gate": True},
    "delta_product": {"num_householder": 2, "negative_eigenvalues": True},
    "gated_delta_product": {
        "num_householder": 3, "negative_eigenvalues": True, "forget_gate": True,
        "convolution": "none",
    },
}  # fmt: skip
EACH = pytest.mark.parametrize("name", OPTIONS)
POSITIONS = pytest.mark.parametrize("position", ["none", "rope"])


def mixer(name, dim=16, num_heads=2, max_len=40, **common):
    return DeltaRule(dim, num_heads, max_len, chunk_size=8, **common, **OPTIONS[name])


def by_definition(mixer: DeltaRule, x: torch.Tensor) -> torch.Tensor:
    """The layer on one sequence x (T, D), head by head and write by write."""
    heads, width, n = mixer.num_heads, mixer.head_dim, mixer.writes
    projected = x @ mixer.qkv.weight.T
    if mixer.convolution.kernel is not None:
        kernel, rows = mixer.convolution.kernel, []
        for t in range(len(x)):
            taps = [projected[t - s] * kernel[:, -1 - s] for s in range(min(t + 1, 4))]
            rows.append(sum(taps))
        projected = torch.stack(rows)
        projected = projected * projected.sigmoid()
    gates = x @ mixer.gates.weight.T  # (T, n H [+ H])
    outputs = []
    for h in range(heads):
        parts = [projected[:, p * mixer.dim + h * width :][:, :width] for p in range(1 + 2 * n)]
        q, *keys = (part / part.norm(dim=-1, keepdim=True) for part in parts[: 1 + n])
        beta = torch.stack([gates[:, j * heads + h] for j in range(n)], 1).sigmoid()
        decay = torch.ones(len(x), dtype=x.dtype)
        if mixer.forgets:
            softplus = (1 + (gates[:, n * heads + h] + mixer.step_bias[h]).exp()).log()
            decay = (-mixer.log_rate[h].exp() * softplus).exp()
        y = reference_delta.delta_rule(
            q,
            torch.stack(keys, 1),
            torch.stack(parts[1 + n :], 1),
            mixer.largest_beta * beta,
            decay,
        )
        rms = (y.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        outputs.append(y / rms * mixer.norm.weight)
    joined = torch.cat(outputs, -1)
    if mixer.output_gate is not None:
        gate = x @ mixer.output_gate.weight.T
        joined = joined * gate * gate.sigmoid()
    return joined @ mixer.out.weight.T


@EACH
@pytest.mark.parametrize("length", [1, 9, 40])
def test_the_whole_layer_equals_its_definition(name, length):
    layer = mixer(name).double()
    x = torch.randn(2, length, 16, dtype=torch.float64)
    expected = torch.stack([by_definition(layer, row) for row in x])
    torch.testing.assert_close(layer(x), expected)
    assert_close([layer.float()(x.float())], [expected], 1e-5)


@EACH
def test_under_bfloat16(name):
    """Projections round to 2^-8; the recurrence does not. A norm between: 5 % of the scale."""
    layer, x = mixer(name, dim=32), torch.randn(2, 33, 32)
    with torch.autocast("cpu", torch.bfloat16):
        low = layer(x)
    assert low.dtype == torch.bfloat16
    assert_close([low], [layer.double()(x.double())], 5e-2)


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


@EACH
@POSITIONS
def test_packed_equals_padded(name, position):
    layer = mixer(name, max_len=60, position=position)
    compare_packed(layer, [1, 2, 3, 15, 16, 17, 33, 60], 1e-4, size_step=8, width_step=4)


def test_a_subclass_that_changes_forward_keeps_its_change_when_packed():
    class Doubled(DeltaRule):
        def forward(self, x):
            return 2 * super().forward(x)

    compare_packed(Doubled(16, 2, 20), [1, 2, 9, 20], 1e-4)


@EACH
def test_the_future_changes_nothing(name):
    layer, x = mixer(name).eval(), torch.randn(1, 40, 16)
    before = layer(x)
    for t in (0, 7, 8, 20, 38):
        changed = x.clone()
        changed[:, t + 1 :] += torch.randn(1, 39 - t, 16)
        after = layer(changed)
        torch.testing.assert_close(after[:, : t + 1], before[:, : t + 1], rtol=1e-4, atol=1e-5)
        assert not torch.allclose(after[:, t + 1], before[:, t + 1])


@EACH
def test_exact_evaluation_can_use_it(name):
    build = functools.partial(DeltaRule, **OPTIONS[name])
    require_exact(Transformer(11, 12, 8, 2, 2, build).eval())


@EACH
@POSITIONS
def test_state_bytes_equal_the_bytes_held(name, position):
    layer = mixer(name, position=position)
    for length in (1, 30):
        state = layer.prefill(torch.randn(1, length, 16), torch.tensor([length]))[1]
        assert state.nbytes() == layer.state_bytes(length)


@EACH
def test_flops_are_those_of_the_recurrence(name):
    """Linear layers by PyTorch's count of `forward`, the rest by counting products in a step."""
    layer = mixer(name)
    with torch.utils.flop_counter.FlopCounterMode(display=False) as counter, torch.no_grad():
        for linear in layer.modules():
            if isinstance(linear, torch.nn.Linear):
                linear(torch.empty(9, 16))
    terms = layer.flops(9)
    linear_layers = sum(count for term, count in terms.items() if term.startswith("linear/"))
    assert linear_layers == counter.get_total_flops()
    heads, width, n = layer.num_heads, layer.head_dim, layer.writes
    multiply_adds = n * (width * width + width * width) + width * width  # S^T k, k u^T; S^T q
    mixing = 9 * heads * (2 * multiply_adds + (width * width if layer.forgets else 0))
    kernel = layer.convolution.kernel
    mixing += 0 if kernel is None else 9 * 2 * kernel.numel()
    assert sum(terms.values()) - linear_layers == mixing
    assert 9 * layer.step_flops(3) == sum(terms.values())


@EACH
def test_roles(name):
    model = Transformer(11, 12, 16, 1, 2, functools.partial(DeltaRule, **OPTIONS[name]))
    prefix = "blocks.0.mixer."
    roles = {k.removeprefix(prefix): r for k, r in model.parameter_roles().items() if prefix in k}
    assert roles["qkv.weight"].parts == 1 + 2 * OPTIONS[name].get("num_householder", 1)
    assert roles["qkv.weight"].kind == roles["out.weight"].kind == "hidden"
    assert roles["gates.weight"].kind == "head" and roles["norm.weight"].kind == "vector"
    for decay in {"log_rate", "step_bias"} & set(roles):
        assert (roles[decay].kind, roles[decay].decays) == ("vector", False)


def test_initial_decays_are_mamba_2s():
    """A in 1 ... 16 and Δ in 0.001 ... 0.1, so that α lies between 0.2 and 0.999."""
    layer = DeltaRule(512, 256, 8, forget_gate=True)
    log_decay = layer.strengths(torch.zeros(1, 512))[1]
    rate = layer.log_rate.exp()
    assert 1 <= rate.min() < 2 and 15 < rate.max() <= 16
    steps = -log_decay / rate
    assert 1e-3 * 0.999 <= steps.min() < 2e-3 and 0.05 < steps.max() <= 0.1001
    assert 0.2 < log_decay.min().exp() and log_decay.max().exp() < 0.9991


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
        layer.gates.weight.copy_(torch.tensor(gates))
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


@settings(max_examples=30, deadline=None)
@given(st.lists(st.permutations(range(3)), min_size=1, max_size=50))
def test_two_reflections_a_token_compose_permutations_of_three(word):
    """S3: every permutation is at most two swaps, and a swap of i and j mirrors e_i - e_j."""
    from models.delta_rule import delta_rule

    keys, strengths = zip(*(swaps(permutation) for permutation in word), strict=True)
    k = torch.tensor([[[1.0, 0, 0], [0, 1, 0]], [[0, 0, 1], [0, 0, 1]], *keys])[None, None].double()
    beta = torch.tensor([[1.0, 1], [1, 0], *strengths])[None, None].double()
    v = torch.zeros_like(k)
    v[0, 0, :2] = k[0, 0, :2]  # the identity, in two tokens
    state = delta_rule(k[:, :, :, 0], k, v, beta, None, 8)[1][0, 0]
    places = list(range(3))
    for permutation in word:
        places = [permutation[place] for place in places]
    expected = torch.zeros(3, 3, dtype=torch.float64)
    for start, place in enumerate(places):
        expected[place, start] = 1
    torch.testing.assert_close(state, expected)


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
