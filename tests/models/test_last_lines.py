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
        assert held < min(least, 40) if "sparse" in options else held == min(least, 40)
        assert own.blocks[0].mixer.slots(40) == held
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


class Doubled(LastLines):
    """A mixer of one's own, without a packed form."""

    def forward(self, x, **seen):
        return 2 * super().forward(x, **seen)


def test_a_mixer_of_ones_own_sees_the_lines_of_packed_sequences():
    torch.manual_seed(0)
    mixer, packing = Doubled(16, 2, 40, lines=(PROMPT, 5)), Packing(np.array([5, 9, 17, 30]))
    x, ends = torch.randn(packing.size, 16), torch.rand(packing.size) < 0.2
    packed = mixer.forward_packed(x, packing, ends=ends)
    sequences = [slice(*pair) for pair in pairwise(packing.offsets)]
    padded = torch.cat([mixer(x[None, own], ends=ends[None, own])[0] for own in sequences])
    torch.testing.assert_close(packed, padded)


TASKS = [
    (cls, form, size, capacity)
    for cls in (Arithmetic, EditDistance, EditDistanceLocal, LIS)
    for form in (cls.formats if cls is LIS else ("cot", "direct"))
    for size in (1, 2, 5)
    for capacity in (None, size + 2)
]


def drawn(task, count=200):
    """Sequences of the training mixture, and which of their tokens end a line."""
    for size in {task.size, task.min_size}:
        sequences = task.draw(0, 0, 0, count, size)
        for row in range(count):
            read = sequences.lengths[row] - 1  # without EOS
            tokens = task.vocabulary.decode(sequences.tokens[row, :read])
            yield [token in task.line_ends for token in tokens]


@pytest.mark.parametrize(("cls", "form", "size", "capacity"), TASKS)
@pytest.mark.parametrize("keep_prompt", [False, True])
def test_no_line_of_a_task_is_cut_off(cls, form, size, capacity, keep_prompt):
    task = cls(size, format=form, capacity=capacity)
    room = task.room
    mixer = LastLines(8, 2, room.max_len, lines=room.longest_lines, keep_prompt=keep_prompt)
    for ends in drawn(task):
        line = np.cumsum([0, *ends[:-1]])
        expected = line >= line[:, None] - 1
        if keep_prompt:
            expected |= line == 0
        at, marked = torch.arange(len(ends)), torch.tensor([ends])
        previous, _, prompt = mixer.lines_of(marked, marked)[0, :-1].unbind(-1)
        found = mixer.sees(at[:, None], at, previous[:, None], prompt[:, None])
        assert (found.numpy() == (expected & (at <= at[:, None]).numpy())).all()


@pytest.mark.parametrize("cls", [Arithmetic, EditDistance, EditDistanceLocal, LIS])
def test_the_longest_lines(cls):
    task, longest = cls(5), (0, 0)
    for ends in drawn(task):
        prompt, *chain = np.diff([0, *(np.flatnonzero(ends) + 1), len(ends)])
        longest = max(longest[0], prompt), max(longest[1], *chain)
    assert longest[0] == task.longest_lines[0]
    assert 0.7 * task.longest_lines[1] <= longest[1] <= task.longest_lines[1]
