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
from tasks.ed import EditDistance
from tasks.ed_local import EditDistanceLocal
from tasks.lis import LIS
from tests.models.reference.last_lines import mix

END, PROMPT = 3, 6
OPTIONS = [{}, {"keep_prompt": True}, {"sparse": True}, {"keep_prompt": True, "sparse": True}]


def model(line=5, position="sinusoidal", **options):
    torch.manual_seed(0)
    mixer = functools.partial(LastLines, lines=(PROMPT, line), **options)
    return Transformer(7, 40, 16, 2, 2, mixer, position=position, line_ends=[END]).eval()


@given(
    st.lists(st.booleans(), min_size=1, max_size=20),
    st.tuples(st.integers(1, 12), st.integers(1, 12)),
    st.sampled_from(OPTIONS),
)
@settings(max_examples=60, deadline=None)
def test_a_token_sees_its_line_and_the_one_before(ends, lines, options):
    torch.manual_seed(0)
    mixer, x = LastLines(8, 2, 20, lines=lines, **options), torch.randn(1, len(ends), 8).double()
    mixer.double()
    found = mixer(x, ends=torch.tensor([ends]))
    torch.testing.assert_close(found, mix(mixer, x, ends))


@pytest.mark.parametrize("position", ["sinusoidal", "rope"])
@pytest.mark.parametrize("line", [1, 5, 40])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_generation_and_packing_equal_the_forward_pass(line, position, options):
    own, lengths = model(line, position, **options), torch.tensor([1, 4, 9, 12, 20])
    tokens = torch.randint(0, 7, (5, 30))
    with torch.inference_mode():
        whole, rows = own(tokens), torch.arange(5)
        logits, state = own.prefill(tokens[:, :20], lengths)
        torch.testing.assert_close(logits, whole[rows, lengths - 1])
        for positions in (lengths + step for step in range(10)):
            logits = own.step(tokens[rows, positions], positions, state)
            torch.testing.assert_close(logits, whole[rows, positions])
        held = state[0].tensors["keys"].shape[2]
        least = PROMPT + 2 * line if "keep_prompt" in options else max(PROMPT + line, 2 * line)
        assert held == min(least, 40)
        packing = Packing(lengths.numpy())
        packed = torch.cat([row[:n] for row, n in zip(tokens, lengths, strict=True)])
        rows = own.head(own.hidden(packed, packing)).split(lengths.tolist())
        for row, found in zip(whole, rows, strict=True):
            torch.testing.assert_close(found, row[: len(found)])


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_packed_gradients_equal_the_padded_ones(options):
    mixer = LastLines(16, 2, 40, lines=(PROMPT, 5), **options)
    packing = Packing(np.array([5, 9, 17, 30]))
    x, ends = torch.randn(packing.size, 16, requires_grad=True), torch.rand(packing.size) < 0.2
    packed = mixer.forward_packed(x, packing, ends=ends)
    sequences = [slice(*pair) for pair in pairwise(packing.offsets)]
    padded = torch.cat([mixer(x[None, own], ends=ends[None, own])[0] for own in sequences])
    torch.testing.assert_close(packed, padded)
    direction = torch.randn_like(packed)
    gradients = [torch.autograd.grad(y, x, direction)[0] for y in (packed, padded)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("cls", [Arithmetic, EditDistance, EditDistanceLocal, LIS])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_the_longest_lines(cls, size):
    task = cls(size)
    sequences, longest = task.draw(0, 0, 0, 300), (0, 0)
    for row in range(300):
        tokens = task.decode(sequences, row).tokens
        ends = [i + 1 for i, token in enumerate(tokens) if token in task.line_ends]
        prompt, *chain = np.diff([0, *ends, len(tokens)])
        assert prompt == sequences.prompt_lengths[row]
        longest = max(longest[0], prompt), max(longest[1], *chain)
    assert longest[0] == task.longest_lines[0]
    assert 0.7 * task.longest_lines[1] <= longest[1] <= task.longest_lines[1]
