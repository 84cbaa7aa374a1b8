"""How far fast forms on a device are from plain references in float64 on the CPU.

Every function returns an error relative to the largest magnitude, of which NaN stays NaN.
"""

from __future__ import annotations

import copy
import functools
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.shared.cells import MIXERS, build_model, train_to, training_loss
from evaluation.generation import generate
from models import reference
from models.transformer import Transformer
from tasks.task import EOS_ID, Task
from training.recipe import Recipe

BLOCK = 8
FORMS: dict[str, dict[str, Any]] = {
    "standard": {},
    "sparse-dense": {"implementation": "dense", "block_size": BLOCK},
    "sparse-blocked": {"implementation": "blocked", "block_size": BLOCK},
    "linear-dense": {"implementation": "dense"},
    "linear-chunked": {"implementation": "chunked"},
}


def attention(form: str, precision: str, length: int, head_dim: int, device: torch.device) -> float:
    """Compare output and gradients of one form's `attend` with the definition."""
    torch.manual_seed(length)
    model = form.split("-")[0]
    mixer = MIXERS[model](2 * head_dim, 2, max(length, 70), **FORMS[form]).to(device)
    dtype = getattr(torch, precision)
    inputs = [torch.randn(2, 2, length, head_dim).to(dtype) for _ in range(3)]
    direction = torch.randn(2, 2, length, head_dim).to(dtype)
    fast = with_gradients(mixer.attend, [x.to(device) for x in inputs], direction.to(device))
    naive = with_gradients(definition(model), [x.double() for x in inputs], direction.double())
    return largest_error(fast, naive)


def definition(model: str) -> Callable[..., Tensor]:
    """Return the plain reference of a mixer."""
    if model == "linear":
        return reference.linear_attention
    if model == "standard":
        return functools.partial(reference.softmax_attention, attended=reference.standard_set)
    return functools.partial(
        reference.softmax_attention, attended=lambda i: reference.sparse_set(i, BLOCK, 1, 1)
    )


def with_gradients(
    function: Callable[..., Tensor], inputs: Sequence[Tensor], direction: Tensor
) -> list[Tensor]:
    """Return the output of ``function`` and the gradients of its product with ``direction``."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    output = function(*leaves)
    return [output.detach(), *torch.autograd.grad(output, leaves, direction)]


def largest_error(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Return the largest difference over the largest magnitude (1 at least) of each pair."""
    errors = [
        float((a.cpu().double() - b.cpu().double()).abs().max() / b.abs().max().clamp(min=1.0))
        for a, b in zip(found, expected, strict=True)
    ]
    return largest(errors)


def largest(errors: Sequence[float]) -> float:
    """Return the largest of ``errors``, or NaN when one is: Python's max() passes it over."""
    return float(torch.tensor(errors, dtype=torch.float64).max())


def model_for(name: str, task: Task, dim: int, dropout: float = 0.0) -> Transformer:
    """Return a model for ``task``, the same at every call."""
    return build_model(name, len(task.vocabulary), task.max_len, dim, dropout)


def whole_model(
    name: str, precision: str, task: Task, dim: int, device: torch.device, compiled: bool = False
) -> float:
    """Compare loss and every gradient, scaled by their common size."""
    model = model_for(name, task, dim)
    exact = copy.deepcopy(model).double()
    fast = model.to(device)
    if compiled:
        fast.hidden = torch.compile(fast.hidden, dynamic=False)  # type: ignore[method-assign]
    loss, gradient = loss_and_gradient(fast, task, precision)
    exact_loss, exact_gradient = loss_and_gradient(exact, task, "float32")
    difference = float((gradient - exact_gradient).norm() / exact_gradient.norm())
    return largest([difference, abs(loss - exact_loss)])


def loss_and_gradient(model: Transformer, task: Task, precision: str) -> tuple[float, Tensor]:
    """Return the training loss on 32 sequences and its gradient as one vector on the CPU."""
    loss = training_loss(model, task.draw(0, 1, 0, 32), precision)
    loss.backward()
    gradients = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    return float(loss.detach().double()), torch.cat(gradients).cpu().double()


@torch.no_grad()
def generation(name: str, task: Task, dim: int, device: torch.device) -> float:
    """Compare the logits of `prefill` and `step` with whole forward passes in float64."""
    model = model_for(name, task, dim).eval()
    exact = copy.deepcopy(model).double()
    tokens = torch.randint(2, len(task.vocabulary), (4, task.max_len))
    lengths = torch.tensor([1, 2, 5, 9])
    moved, position = tokens.to(device), lengths.to(device)
    logits, state = model.to(device).prefill(moved[:, :9], position)
    rows, found = torch.arange(4, device=device), [logits]
    for _ in range(task.max_len - 9):
        logits = model.step(moved[rows, position], position, state)
        position = position + 1
        found.append(logits)
    full = torch.stack(reference.full_decoding(exact, tokens), dim=1)  # (B, T, V)
    steps = torch.arange(len(found))
    expected = full[torch.arange(4), lengths - 1 + steps[:, None]]  # (steps, B, V)
    return largest_error([torch.stack(found)], [expected])


@torch.no_grad()
def evaluation(name: str, task: Task, dim: int, device: torch.device) -> float:
    """Return in how many of 16 sequences certified evaluation writes another token than plain
    greedy decoding; the head is widened so that an untrained model's choices vary."""
    model = model_for(name, task, dim).eval()
    model.head.weight.mul_(20)
    sequences = task.draw(0, 0, 0, 16)
    exact = copy.deepcopy(model).double()
    written = generate(model, sequences, device=device)
    wrong = 0
    for row in range(len(sequences)):
        tokens = sequences.tokens[row, : sequences.prompt_lengths[row]].astype(int).tolist()
        while tokens[-1] != EOS_ID and len(tokens) <= task.max_len:
            tokens.append(int(exact(torch.tensor([tokens]))[0, -1].argmax()))
        wrong += written.tokens[row, : written.lengths[row]].tolist() != tokens
    return float(wrong)


def twice(
    name: str, task: Task, dim: int, steps: int, device: torch.device, interrupted: bool
) -> float:
    """Return the largest difference between the weights of two trainings of one cell, the second
    of them ``interrupted`` half-way."""
    recipe = Recipe(
        "twice", 1e-3, 64, steps=steps, optimizer="muon", dropout=0.1,
        validate_every=max(2, steps // 2), gradient_clip=1.0, average_decay=0.99,
    )  # fmt: skip
    sets = task.draw(0, 2, 0, 2000), task.draw(0, 1, 0, 200)
    weights = []
    for stops in ([None], [steps // 2, None] if interrupted else [None]):
        with tempfile.TemporaryDirectory() as folder:
            for stop in stops:  # each as a new process would
                model = model_for(name, task, dim, recipe.dropout).to(device)
                train_to(stop, model, recipe, *sets, Path(folder))
        weights.append([p.detach() for p in model.parameters()])
    return largest_error(weights[1], weights[0])
