"""Attention to the last two lines, held against a plain loop over positions."""

import functools
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.last_lines import LastLines
from models.packing import Packing
from models.transformer import Transformer
from tasks.arithmetic import Arithmetic
from tasks.ed_local import EditDistanceLocal
from tests.models.reference.last_lines import mix

END = 3


def model(span=11, position="sinusoidal"):
    torch.manual_seed(0)
    mixer = functools.partial(LastLines, span=span)
    return Transformer(7, 40, 16, 2, 2, mixer, position=position, line_end=END).eval()


@given(st.lists(st.booleans(), min_size=1, max_size=20), st.integers(1, 25))
@settings(max_examples=30, deadline=None)
def test_a_token_sees_its_line_and_the_one_before(ends, span):
    torch.manual_seed(0)
    mixer, x = LastLines(8, 2, 20, span=span).double(), torch.randn(1, len(ends), 8).double()
    found = mixer(x, ends=torch.tensor([ends]))
    torch.testing.assert_close(found, mix(mixer, x, ends))


@pytest.mark.parametrize("position", ["sinusoidal", "rope"])
@pytest.mark.parametrize("span", [3, 11, 40])
def test_generation_and_packing_equal_the_forward_pass(span, position):
    own, lengths = model(span, position), torch.tensor([1, 4, 9, 12, 20])
    tokens = torch.randint(0, 7, (5, 30))
    with torch.inference_mode():
        whole, rows = own(tokens), torch.arange(5)
        logits, state = own.prefill(tokens[:, :20], lengths)
        torch.testing.assert_close(logits, whole[rows, lengths - 1])
        for positions in (lengths + step for step in range(10)):
            logits = own.step(tokens[rows, positions], positions, state)
            torch.testing.assert_close(logits, whole[rows, positions])
        held = state[0].tensors["keys"].shape[2]
        assert held == min(span, 40)
        packing = Packing(lengths.numpy())
        packed = torch.cat([row[:n] for row, n in zip(tokens, lengths, strict=True)])
        rows = own.head(own.hidden(packed, packing)).split(lengths.tolist())
        for row, found in zip(whole, rows, strict=True):
            torch.testing.assert_close(found, row[: len(found)])


def test_packed_gradients_equal_the_padded_ones():
    mixer, packing = LastLines(16, 2, 40, span=11), Packing(np.array([5, 9, 17, 30]))
    x, ends = torch.randn(packing.size, 16, requires_grad=True), torch.rand(packing.size) < 0.2
    packed = mixer.forward_packed(x, packing, ends=ends)
    sequences = [slice(*pair) for pair in pairwise(packing.offsets)]
    padded = torch.cat([mixer(x[None, own], ends=ends[None, own])[0] for own in sequences])
    torch.testing.assert_close(packed, padded)
    direction = torch.randn_like(packed)
    gradients = [torch.autograd.grad(y, x, direction)[0] for y in (packed, padded)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("cls", [Arithmetic, EditDistanceLocal])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_the_longest_two_lines(cls, size):
    task = cls(size)
    sequences, longest = task.draw(0, 0, 0, 300), 0
    for row in range(300):
        tokens = task.decode(sequences, row).tokens
        ends = [i + 1 for i, token in enumerate(tokens) if token == task.answer_marker]
        lines = np.diff([0, *ends, len(tokens)])
        longest = max(longest, *(lines[:-1] + lines[1:]))
    assert longest <= task.longest_lines <= task.max_len
    assert longest >= 0.7 * task.longest_lines
