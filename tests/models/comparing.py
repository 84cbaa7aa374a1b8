"""Compare fast with plain implementations: outputs, gradients, packed sequences, generation."""

import copy
import functools
import sys
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from models.packing import Packing
from models.standard import StandardAttention
from models.transformer import Transformer
from tests.models import reference

FLOAT32 = {"rtol": 1e-4, "atol": 1e-5}  # for logits of magnitude 1 to 5


def transformer(mixer=StandardAttention, dim=8, max_len=12, **common) -> Transformer:
    sizes = {"vocab_size": 11, "num_layers": 2, "num_heads": 2}
    return Transformer(max_len=max_len, dim=dim, mixer=mixer, **(sizes | common))


def random_qkv(length, batch=2, heads=2, width=4, parts=3) -> list[Tensor]:
    return [torch.randn(batch, heads, length, width) for _ in range(parts)]


def with_gradients(function, inputs, direction, parameters=()) -> list[Tensor]:
    """Outputs of function(*inputs) and gradients of (first output * direction).sum() with respect
    to inputs that are not None and to parameters; unused ones have zero gradients."""
    leaves = [None if x is None else x.detach().clone().requires_grad_() for x in inputs]
    y = function(*leaves)
    y, *others = y if isinstance(y, tuple) else (y,)
    wanted = [*(x for x in leaves if x is not None), *parameters]
    direction = direction.to(y.dtype).expand_as(y)
    gradients = torch.autograd.grad(y, wanted, direction, materialize_grads=True)
    return [x.detach() for x in (y, *others, *gradients)]


def assert_close(actual: list[Tensor], expected: list[Tensor], relative: float) -> None:
    """Per tensor: |difference| <= relative * max(1, largest expected magnitude)."""
    for found, wanted in zip(actual, expected, strict=True):
        most = relative * max(wanted.abs().max().item(), 1.0)
        torch.testing.assert_close(found.double(), wanted.double(), rtol=0, atol=most)


def compare_functions(fast, plain, inputs, tolerance):
    """Compare `fast` in the dtype of the inputs with `plain` in float64."""
    with torch.no_grad():
        y = fast(*inputs)
    direction = torch.randn_like(y[0] if isinstance(y, tuple) else y)
    exact = [x if x is None else x.double() for x in inputs]
    found = with_gradients(fast, inputs, direction)
    assert all(part.dtype == inputs[0].dtype for part in found)
    assert_close(found, with_gradients(plain, exact, direction.double()), tolerance)


def plain_form(mixer):
    """The mixer's NAME in tests/models/reference.py, or `mix` of a module outside `models`."""
    package, _, name = type(mixer).__module__.rpartition(".")
    if package == "models":
        return functools.partial(getattr(reference, name), mixer)
    module = sys.modules[type(mixer).__module__]
    if not hasattr(module, "mix"):
        pytest.skip(f"{module.__name__} has no plain form mix(mixer, x) to compare with")
    return functools.partial(module.mix, mixer)


def compare(mixer, x, tolerance):
    """Compare the mixer in its own dtype with its reference in float64."""
    direction, exact = torch.randn(x.shape).to(x), copy.deepcopy(mixer).cpu().double()
    found = [part.cpu() for part in with_gradients(mixer, [x], direction, mixer.parameters())]
    given = [x.cpu().double()], direction.cpu().double(), exact.parameters()
    assert_close(found, with_gradients(plain_form(exact), *given), tolerance)


def padded(x, packing):
    """The sequences of x (N, D), one per row, zero-padded."""
    rows = [x[start:end] for start, end in pairwise(packing.offsets)]
    return pad_sequence(rows, batch_first=True)


def compare_packed(mixer, lengths, tolerance, dtype=torch.float32, size_step=8, width_step=4):
    """Compare packed output and gradients with those of a padded batch in float64."""
    packing = Packing(np.array(lengths), size_step, width_step, mixer.max_len)
    x, direction = torch.randn(2, packing.size, mixer.dim, dtype=dtype)
    direction[packing.offsets[-1] :] = 0
    mixer.to(dtype)
    packed = functools.partial(mixer.forward_packed, packing=packing)
    found = with_gradients(packed, [x], direction, mixer.parameters())
    assert len(found[0]) == packing.size and found[0].dtype == dtype
    found[:2] = [padded(part, packing) for part in found[:2]]
    given = [padded(x.double(), packing)], padded(direction.double(), packing)
    exact = copy.deepcopy(mixer).double()
    wanted = with_gradients(exact, *given, exact.parameters())
    kept = padded(torch.ones(packing.size, 1), packing)
    wanted[:2] = [part * kept for part in wanted[:2]]
    assert_close(found, wanted, tolerance)


def generate(model, tokens, lengths, turn_every=None):
    """Feed known tokens; yield (rows, positions, logits, state) after the prompt and each step.

    Prompts are zero-padded. Rows are removed at the end of `tokens`; every turn_every-th step
    reverses their order.
    """
    ids, positions = torch.arange(len(tokens)), lengths - 1
    prompts = tokens[:, : int(lengths.max())]
    inside = torch.arange(prompts.shape[1]) < lengths[:, None]
    logits, state = model.prefill(torch.where(inside, prompts, 0), lengths)
    for step in range(tokens.shape[1]):
        yield ids, positions, logits, state
        rows = (positions + 1 < tokens.shape[1]).nonzero().flatten()
        if not len(rows):
            return
        if (turn_every and step % turn_every == 0) or len(rows) < len(ids):
            rows = rows.flip(0)
            ids, positions = ids[rows], positions[rows]
            state = [layer.select(rows, int(positions.max()) + 1) for layer in state]
        positions = positions + 1
        logits = model.step(tokens[ids, positions], positions, state)
