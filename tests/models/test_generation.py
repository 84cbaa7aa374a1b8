"""Cached generation against full forward passes: ragged rows, selection, block boundaries."""

import functools

import pytest
import torch
from mixer_cases import BLOCK, CASES, SOFTMAX, Case, each, linear, sparse
from small_models import held_bytes
from toy_mixers import CumulativeMean, TensorAttention

from models.transformer import Transformer

MAX_LEN, VOCABULARY = 41, 11
FLOAT32 = {"rtol": 1e-4, "atol": 1e-5}  # logits are of magnitude 1 to 5
TOYS = [Case("cumulative-mean", CumulativeMean), Case("tensor-attention", TensorAttention)]
ALL = [*CASES, *TOYS, sparse("blocked", BLOCK, 9, 1), sparse("blocked", BLOCK, 1, 0)]


def transformer(case, position="sinusoidal", max_len=MAX_LEN, **sizes):
    mixer = functools.partial(case.build, **case.own)
    sizes = {"dim": 16, "num_layers": 2, "num_heads": 2} | sizes
    return Transformer(VOCABULARY, max_len, **sizes, mixer=mixer, position=position).eval()


def generate(model, tokens, lengths, turn_every=None):
    """Feed known tokens; yield (row numbers, positions, logits) after the prompt and each step.

    Rows leave at the end of `tokens`; at every turn_every-th step their order is turned round.
    """
    ids, positions = torch.arange(len(tokens)), lengths - 1
    logits, state = model.prefill(tokens[:, : int(lengths.max())], lengths)
    for step in range(tokens.shape[1]):
        yield ids, positions, logits, state
        rows = (positions + 1 < tokens.shape[1]).nonzero().flatten()
        if not len(rows):
            return
        if (turn_every and step % turn_every == 0) or len(rows) < len(ids):
            rows = rows.flip(0)
            ids, positions, state = ids[rows], positions[rows], model.select(state, rows)
        positions = positions + 1
        logits = model.step(tokens[ids, positions], positions, state)


@torch.no_grad()
@each(ALL)
@pytest.mark.parametrize("position", ["sinusoidal", "rope", "none"])
@pytest.mark.parametrize("turn_every", [1, 5])
def test_generation_equals_full_forward(case, position, turn_every):
    model = transformer(case, position)
    tokens = torch.randint(0, VOCABULARY, (6, MAX_LEN))
    full = model(tokens)  # (B, T, V)
    lengths = torch.tensor([1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK - 1, 30])
    reached = torch.zeros(6, MAX_LEN, dtype=torch.bool)
    for ids, positions, logits, _ in generate(model, tokens, lengths, turn_every):
        torch.testing.assert_close(logits, full[ids, positions], **FLOAT32)
        reached[ids, positions] = True
    assert reached.sum() == (MAX_LEN - lengths + 1).sum()


@torch.no_grad()
@each([*SOFTMAX, sparse("blocked", BLOCK, 9, 1)])
@pytest.mark.parametrize("prompt", [1, 20])
def test_state_bytes_equal_the_bytes_held(case, prompt):
    """Of one sequence: slots in use at every length, and all that is allocated at full length."""
    model = transformer(case)
    tokens = torch.randint(0, VOCABULARY, (1, MAX_LEN))
    for _, positions, _, state in generate(model, tokens, torch.tensor([prompt])):
        held = sum(bytes_in_use(tensor) for layer in state for tensor in layer.tensors.values())
        assert held == model.state_bytes(int(positions[0]) + 1)
    assert sum(held_bytes(layer) for layer in state) == model.state_bytes(MAX_LEN)


def bytes_in_use(tensor):
    """Bytes of what was written into a (1, H, slots, K) cache; sums (1, H, K[, K]) are whole."""
    written = tensor.flatten(3).any(-1).any(1) if tensor.dim() == 4 else tensor.new_ones(1)
    return tensor.numel() * tensor.element_size() * int(written.sum()) // written.numel()


@each(TOYS)
def test_default_state_keeps_the_inputs(case):
    model = transformer(case)
    state = model.prefill(torch.zeros(2, 5, dtype=torch.int64), torch.tensor([5, 2]))[1]
    assert model.state_bytes(MAX_LEN) * 2 == sum(held_bytes(layer) for layer in state)


@torch.no_grad()
def test_a_step_looks_only_as_far_as_the_longest_sequence():
    model = transformer(linear("chunked"))
    state = model.prefill(torch.zeros(3, 9, dtype=torch.int64), torch.tensor([9, 4, 2]))[1]
    assert state[0].extent == 9
    state = model.select(state, torch.tensor([2, 1]))
    assert state[0].extent == 4
    model.step(torch.tensor([0, 0]), torch.tensor([2, 4]), state)
    assert (state[0].extent, state[0].lengths.tolist()) == (5, [3, 5])
