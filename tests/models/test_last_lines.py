"""Attention to the last two lines, compared with a plain loop over positions."""

import functools
from itertools import pairwise

import numpy as np
import pytest
import torch
from comparing import assert_close
from hypothesis import given, settings
from hypothesis import strategies as st

from models.last_lines import LastLines
from models.packing import Packing
from models.transformer import Transformer
from tasks.arithmetic import Arithmetic
from tasks.ed import EditDistance
from tasks.ed_local import EditDistanceLocal
from tasks.lis import LIS
from tests.models.reference import last_lines

END, PROMPT = 3, 6
OPTIONS = [{}, {"keep_prompt": True}, {"sparse": True}, {"keep_prompt": True, "sparse": True}]


@given(
    st.lists(st.booleans(), min_size=1, max_size=20),
    st.tuples(st.integers(1, 12), st.integers(1, 12)),
    st.sampled_from(OPTIONS),
)
@settings(max_examples=60)
def test_a_token_sees_its_line_and_the_one_before(ends, lines, options):
    torch.manual_seed(0)
    mixer = LastLines(8, 2, 20, longest_lines=lines, **options).double()
    x = torch.randn(1, len(ends), 8).double()
    found = mixer(x, ends=torch.tensor([ends]))
    torch.testing.assert_close(found, last_lines(mixer, x, ends))


class Doubled(LastLines):
    """A custom mixer without a packed implementation."""

    def forward(self, x, **seen):
        return 2 * super().forward(x, **seen)


@pytest.mark.parametrize("cls", [LastLines, Doubled])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_packed_sequences_and_gradients_equal_padded_ones(cls, options):
    mixer = functools.partial(cls, longest_lines=(PROMPT, 5), **options)
    own = Transformer(7, 40, 16, 2, 2, mixer, line_ends=[END])
    packing = Packing(np.array([5, 9, 17, 30]))
    tokens = torch.randint(0, 7, (packing.size,))
    cuts = [slice(*pair) for pair in pairwise(packing.offsets)]
    packed = own.hidden(tokens, packing)
    padded = torch.cat([own.hidden(tokens[None, rows])[0] for rows in cuts])
    direction, weights = torch.randn_like(packed), list(own.blocks.parameters())
    both = [[y, *torch.autograd.grad(y, weights, direction)] for y in (packed, padded)]
    assert_close(*both, 1e-5)


KINDS = [Arithmetic, EditDistance, EditDistanceLocal, LIS]
TASKS = [
    (cls, form, size, capacity)
    for cls in KINDS for form in (cls.formats if cls is LIS else ("cot", "direct"))
    for size in (1, 2, 5) for capacity in (None, size + 2)
]  # fmt: skip


def drawn(task, count=200):
    """Yield which tokens end a line, for sequences of the training mixture."""
    for size in {task.size, task.min_size}:
        sequences = task.draw(0, 0, 0, count, size)
        for row in range(count):
            read = sequences.lengths[row] - 1  # without EOS
            tokens = task.vocabulary.decode(sequences.tokens[row, :read])
            yield [token in task.line_ends for token in tokens]


@pytest.mark.parametrize(("cls", "form", "size", "capacity"), TASKS)
@pytest.mark.parametrize("keep_prompt", [False, True])
def test_no_line_of_a_task_is_truncated(cls, form, size, capacity, keep_prompt):
    task = cls(size, format=form, capacity=capacity)
    room = task.at_capacity
    mixer = LastLines(8, 2, room.max_len, longest_lines=room.longest_lines, keep_prompt=keep_prompt)
    for ends in drawn(task):
        line = np.cumsum([0, *ends[:-1]])
        expected = line >= line[:, None] - 1
        if keep_prompt:
            expected |= line == 0
        at, marked = torch.arange(len(ends)), torch.tensor([ends])
        previous, _, prompt = mixer.lines_of(marked, marked)[0, :-1].unbind(-1)
        found = mixer.sees(at[:, None], at, previous[:, None], prompt[:, None])
        assert (found.numpy() == (expected & (at <= at[:, None]).numpy())).all()


@pytest.mark.parametrize("cls", KINDS)
def test_the_longest_lines(cls):
    task, longest = cls(5), (0, 0)
    for ends in drawn(task):
        prompt, *chain = np.diff([0, *(np.flatnonzero(ends) + 1), len(ends)])
        longest = max(longest[0], prompt), max(longest[1], *chain)
    assert longest[0] == task.longest_lines[0]
    assert 0.7 * task.longest_lines[1] <= longest[1] <= task.longest_lines[1]
