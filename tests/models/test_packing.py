"""Packed sequences: their layout, and mixers compared with the same mixers on padded batches."""

import functools
from itertools import pairwise

import numpy as np
import pytest
import torch
from comparing import compare_functions, compare_packed, with_gradients
from hypothesis import given, settings
from hypothesis import strategies as st
from numba.core.dispatcher import Dispatcher

from models import cpu_attention, cpu_recurrence, kernels, packing
from models.cpu_attention import KEY_LANES
from models.decayed import DecayedAttention
from models.delta import DeltaRule
from models.linear import LinearAttention
from models.mixer import Mixer
from models.packing import MAX_KERNEL_LENGTH, Packing, rounded_up
from models.sparse import SparseAttention
from models.standard import StandardAttention

ATTENTION = [StandardAttention, SparseAttention, LinearAttention]
EACH = pytest.mark.parametrize("mixer", ATTENTION)
LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=40).map(sorted)


def test_mixed_lengths_are_grouped_and_similar_lengths_are_not_split():
    assert len(Packing(np.full(64, 23)).groups) == 1
    assert len(Packing(np.sort(np.arange(64) % 4 + 17)).groups) == 1
    mixed = Packing(np.repeat([20, 40, 60, 80], 16))
    assert len(mixed.groups) > 2
    held = sum(group.shape[0] * group.shape[1] for group in mixed.groups)
    assert 1 - mixed.size / held < 0.25


@settings(max_examples=100)
@given(LENGTHS, st.integers(1, 9))
def test_groups_contain_every_sequence_and_can_be_unpacked(lengths, step):
    packing = Packing(np.array(lengths), step, step, 40)
    assert packing.size % step == 0 and 0 <= packing.size - sum(lengths) < step
    x = torch.arange(1.0, packing.size + 1)
    x[sum(lengths) :] = 0
    held = [group.pad(x) for group in packing.groups]
    rows = [row for part in held for row in part]
    for row, (start, end) in zip(rows, pairwise(packing.offsets), strict=True):
        assert row[: end - start].tolist() == x[start:end].tolist()
        assert set(row[end - start :].tolist()) <= {x[end - 1].item()}
    assert all(part.shape[1] % step == 0 or part.shape[1] == 40 for part in held)
    back = packing.map_padded(lambda part: part, x)
    assert back.tolist() == x.tolist()


@pytest.mark.parametrize("lengths", [[], [0, 2], [3, 2, 5]])
def test_lengths_must_ascend(lengths):
    with pytest.raises(ValueError, match="the shortest first"):
        Packing(np.array(lengths, np.int64))


@EACH
@pytest.mark.parametrize("head_dim", [1, 3, 8, 16, 17])
def test_kernels_at_every_head_width(mixer, head_dim):
    compare_packed(mixer(2 * head_dim, 2, 129), [1, 7, 16, 50, 129], 1e-5)


@EACH
def test_sequences_longer_than_the_kernels_accept(mixer, monkeypatch):
    compare_packed(
        mixer(8, 2, MAX_KERNEL_LENGTH), [3, MAX_KERNEL_LENGTH], 1e-5, size_step=1, width_step=1
    )
    monkeypatch.setattr(packing.PackedAttention, "apply", None)
    longest = MAX_KERNEL_LENGTH + 1
    compare_packed(mixer(8, 2, longest), [3, longest], 1e-5, size_step=1, width_step=1)


def test_the_bias_is_no_larger_than_the_longest_kernel_input():
    """Otherwise the bias of a window over 7,321 tokens would take 205 MiB."""
    mixer = SparseAttention(8, 2, 4 * MAX_KERNEL_LENGTH)
    compare_packed(mixer, [3, MAX_KERNEL_LENGTH], 1e-5)
    assert mixer.bias.shape == 2 * (rounded_up(MAX_KERNEL_LENGTH, KEY_LANES),)


@pytest.mark.parametrize(
    ("base", "method"),
    [(StandardAttention, "project"), (StandardAttention, "apply_rotary"),
     (StandardAttention, "softmax"), (LinearAttention, "attend"), (LinearAttention, "merge_heads"),
     (DeltaRule, "scan"), (DecayedAttention, "forward")],
)  # fmt: skip
def test_overridden_methods_also_apply_to_packed_sequences(base, method):
    def changed(self, *inputs, **named):
        result = getattr(base, method)(self, *inputs, **named)
        return tuple(2 * x for x in result) if isinstance(result, tuple) else 2 * result

    own = type("Own", (base,), {method: changed})
    torch.manual_seed(1)
    compare_packed(own(8, 2, 20), [1, 2, 9, 20], 1e-5)


@EACH
@pytest.mark.parametrize("size", [1.0, 30.0])
def test_kernels_at_large_scores(mixer, size):
    """Weights and features of keys and queries underflow."""
    own, packing = mixer(8, 2, 20), Packing(np.array([1, 2, 9, 20]))
    qkv = torch.randn(packing.size, 3, 2, 4) * size
    qkv[:, 2] /= size
    packed = functools.partial(own.packed_kernel, packing=packing)

    def attend(qkv):  # (B, T, 3, H, K) to (B, T, H, K)
        return own.attend(*(x.transpose(1, 2) for x in qkv.unbind(2))).transpose(1, 2)

    padded = functools.partial(packing.map_padded, attend)
    compare_functions(packed, padded, [qkv], 1e-5 * size**2)  # scores of 900 have errors of 1e-4
    qkv[:, :2] *= 1e4
    found = with_gradients(packed, [qkv], torch.randn(packing.size, 2, 4))
    assert all(x.isfinite().all() for x in found)


@EACH
def test_nan_propagates(mixer):
    own, packing = mixer(8, 2, 20), Packing(np.array([5, 6]))
    x = torch.randn(packing.size, 8)
    x[2] = torch.nan
    y = own.forward_packed(x, packing)
    assert y[2:5].isnan().all() and not y[5:].isnan().any()


@EACH
def test_kernels_under_autocast(mixer):
    own, packing = mixer(16, 2, 20), Packing(np.array([5, 6, 20]))
    x = torch.randn(packing.size, 16)
    with torch.autocast("cpu", torch.bfloat16):
        y = own.forward_packed(x, packing)
        wanted = Mixer.forward_packed(own, x, packing)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y, wanted, rtol=2e-2, atol=2e-2)


def test_packed_attention_applies_dropout_to_the_weights():
    torch.manual_seed(0)
    own = StandardAttention(8, 2, 20, dropout=0.5)
    packing, x = Packing(np.array([5, 20])), torch.randn(25, 8)
    assert (own(x[None, 5:])[0] - own.forward_packed(x, packing)[5:]).abs().max() > 0.01
    own.eval()
    torch.testing.assert_close(own.forward_packed(x, packing)[5:], own(x[None, 5:])[0])


@pytest.mark.parametrize("mixer", [*ATTENTION, DeltaRule])
def test_results_do_not_depend_on_the_number_of_threads(mixer):
    own, packing = mixer(8, 2, 20), Packing(np.array([1, 1, 1, 5, 9, 20]), 8)
    x, direction = torch.randn(packing.size, 8), torch.randn(packing.size, 8)
    results = []
    for threads in (1, 2, 5, 20):
        torch.set_num_threads(threads)
        results.append(with_gradients(lambda x: own.forward_packed(x, packing), [x], direction))
    for result in results[1:]:
        torch.testing.assert_close(result, results[0])


@pytest.mark.parametrize("module", [cpu_attention, cpu_recurrence, kernels])
def test_functions_called_by_a_kernel_are_inlined(module):
    """Otherwise the process that compiles the kernels rounds differently from those that load them
    from the cache, and the first training on a machine gives other weights than the next."""
    found = [x for x in vars(module).values() if isinstance(x, Dispatcher)]
    assert found
    for dispatcher in found:
        scope = dispatcher.py_func.__globals__
        for name in dispatcher.py_func.__code__.co_names:
            called = scope.get(name)
            if isinstance(called, Dispatcher):
                assert called.targetoptions.get("inline") == "always", (dispatcher, name)
