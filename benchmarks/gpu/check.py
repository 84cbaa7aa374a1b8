"""Is the GPU right? Fast forms against plain references, there and then.

    python -m benchmarks.gpu.check --out out/check

attention    output and gradients of every fast form against models/reference.py in float64 on the
             CPU, in float32 and bfloat16, at lengths on and off block boundaries
model        loss and gradients of the whole model, as trained, against float64 on the CPU
compiled     the same of the model under torch.compile (--compile; a minute a model)
generation   cached generation against a full forward pass for every token, in float64 on the CPU
evaluation   certified evaluation against greedy decoding token by token in float64
twice        a cell trained twice, and a third time interrupted half-way: equal to the bit, or by
             how much not

Errors are relative to the largest magnitude. Exit status 1 when one exceeds its tolerance or is not
finite; how much "twice" finds is told, not judged: on a GPU some gradients are summed in changing
order.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import functools
import math
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.gpu.shared import MIXERS, Clock, Record, Row, call, parser, print_table, run_cases
from errors import RunError
from evaluation.generation import generate
from models import reference
from models.transformer import Transformer
from tasks.arithmetic import Arithmetic
from tasks.task import EOS_ID, Task
from training.batches import SequenceTensors
from training.loss import masked_loss
from training.precision import autocast
from training.recipe import Recipe
from training.trainer import Interrupted, Trainer, TrainingRun

BLOCK = 8
FORMS: dict[str, dict[str, Any]] = {
    "standard": {},
    "sparse-dense": {"implementation": "dense", "block_size": BLOCK},
    "sparse-blocked": {"implementation": "blocked", "block_size": BLOCK},
    "linear-dense": {"implementation": "dense"},
    "linear-chunked": {"implementation": "chunked"},
}
LENGTHS = [7, 8, 63, 221]
HEAD_DIMS = [8, 64]
# float32 rounds to 6e-8, bfloat16 to 4e-3, and sums and softmax leave some roundings of either.
ATTENTION = {"float32": 1e-5, "bfloat16": 4e-2}
# Three layers, and products of matrices summed in another order than the CPU's.
MODEL = {"float32": 1e-3, "bfloat16": 1e-1}
GENERATION = 1e-4


def main(argv: Sequence[str] | None = None) -> None:
    """Check, print the table, write check.json; `RunError` when a check fails."""
    options = arguments(argv)
    clock = Clock(options.minutes)
    record = Record(options.out / "check.json", earlier(options.given), options.device)
    missing = run_cases(record, cases(options), clock, reserve=5)
    found = {key: verdict(row) for key, row in record.rows.items()}
    print_table(
        [[key, *values] for key, values in found.items()],
        ["check", "error", "tolerance", "verdict"],
    )
    print(f"{record.about['device']}: {len(found)} checks, {missing} still missing")
    wrong = [key for key, (_, _, word) in found.items() if word.startswith(("WRONG", "failed"))]
    if wrong:
        raise RunError(f"{len(wrong)} checks failed: {', '.join(wrong)}")


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    result = parser(__doc__, "check")
    result.add_argument("--compile", action="store_true", help="check torch.compile too")
    result.add_argument("--small", action="store_true", help="tiny sizes, to try the script")
    return result.parse_args(argv)


def earlier(folders: Sequence[Path]) -> list[Path]:
    """Return the records of earlier calls."""
    return [folder / "check.json" for folder in folders]


def verdict(row: Row) -> tuple[float | None, float | None, str]:
    """Return error, tolerance and the word for it; what is not finite is wrong anywhere."""
    if row["status"] != "done":
        return None, None, row["status"]
    if not math.isfinite(row["error"]):
        return row["error"], row["tolerance"], "WRONG"
    if row["tolerance"] is None:
        return row["error"], None, "equal to the bit" if row["error"] == 0 else "differs"
    return row["error"], row["tolerance"], "ok" if row["error"] <= row["tolerance"] else "WRONG"


def cases(options: argparse.Namespace) -> dict[str, Callable[[], Row]]:
    """Return every check by its name."""
    device = options.device
    found: dict[str, Callable[[], Row]] = {}
    lengths, head_dims = ([3, 9], HEAD_DIMS[:1]) if options.small else (LENGTHS, HEAD_DIMS)
    dim, operators, steps = (16, 2, 6) if options.small else (128, 6, 100)
    for form in FORMS:
        for precision in ATTENTION:
            for length in lengths:
                for head_dim in head_dims:
                    found[f"attention {form} {precision} L={length} K={head_dim}"] = (
                        functools.partial(attention, form, precision, length, head_dim, device)
                    )
    task = Arithmetic(operators)
    for name in MIXERS:
        for precision in MODEL:
            check = functools.partial(whole_model, name, precision, task, dim, device)
            found[f"model {name} {precision}"] = check
            if options.compile:
                found[f"compiled {name} {precision}"] = functools.partial(check, compiled=True)
        found[f"generation {name}"] = functools.partial(generation, name, task, dim, device)
        found[f"evaluation {name}"] = functools.partial(evaluation, name, task, dim, device)
        for interrupted in (False, True):
            how = "interrupted" if interrupted else "twice"
            found[f"{how} {name}"] = functools.partial(
                twice, name, task, dim, steps, device, interrupted
            )
    return found


def attention(form: str, precision: str, length: int, head_dim: int, device: torch.device) -> Row:
    """Compare output and gradients of one form's `attend` with the definition."""
    torch.manual_seed(length)
    model = form.split("-")[0]
    mixer = MIXERS[model](2 * head_dim, 2, max(length, 70), **FORMS[form]).to(device)
    dtype = getattr(torch, precision)
    inputs = [torch.randn(2, 2, length, head_dim).to(dtype) for _ in range(3)]
    direction = torch.randn(2, 2, length, head_dim).to(dtype)
    fast = with_gradients(mixer.attend, [x.to(device) for x in inputs], direction.to(device))
    naive = with_gradients(definition(model), [x.double() for x in inputs], direction.double())
    return {"error": largest_error(fast, naive), "tolerance": ATTENTION[precision]}


def definition(model: str) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
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
    output.backward(direction)
    return [output.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]


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


def build(name: str, task: Task, dim: int, dropout: float = 0.0) -> Transformer:
    """Return a model of three layers, the same at every call."""
    torch.manual_seed(0)
    return Transformer(len(task.vocabulary), task.max_len, dim, 3, 4, MIXERS[name], dropout)


def whole_model(
    name: str, precision: str, task: Task, dim: int, device: torch.device, compiled: bool = False
) -> Row:
    """Compare loss and every gradient, scaled by their common size, with float64 on the CPU."""
    model, sequences = build(name, task, dim), task.draw(0, 1, 0, 32)
    exact = copy.deepcopy(model).double()
    fast = model.to(device)
    if compiled:
        fast.hidden = torch.compile(fast.hidden, dynamic=False)  # type: ignore[method-assign]
    results = []
    for net, where, numbers in ((fast, device, precision), (exact, torch.device("cpu"), "float32")):
        tensors = SequenceTensors(sequences, where)
        with autocast(numbers, where):
            loss = masked_loss(net, tensors.batch(torch.arange(32, device=where)))
        loss.backward()
        flat = torch.cat([p.grad.flatten().cpu() for p in net.parameters() if p.grad is not None])
        results.append((loss.detach().cpu(), flat))
    (loss, gradient), (exact_loss, exact_gradient) = results
    difference = float((gradient.double() - exact_gradient).norm() / exact_gradient.norm())
    error = largest([difference, abs(float(loss.double() - exact_loss))])
    return {"error": error, "tolerance": MODEL[precision]}


@torch.no_grad()
def generation(name: str, task: Task, dim: int, device: torch.device) -> Row:
    """Compare the logits of `prefill` and `step` with whole forward passes in float64."""
    model = build(name, task, dim).eval()
    exact = copy.deepcopy(model).double()
    tokens = torch.randint(2, len(task.vocabulary), (4, task.max_len))
    lengths = torch.tensor([1, 2, 5, 9])
    moved, places = tokens.to(device), lengths.to(device)
    logits, state = model.to(device).prefill(moved[:, :9], places)
    rows, found = torch.arange(4, device=device), [logits]
    for _ in range(task.max_len - 9):
        logits = model.step(moved[rows, places], places, state)
        places = places + 1
        found.append(logits)
    full = torch.stack(reference.full_decoding(exact, tokens), dim=1)  # (B, T, V)
    steps = torch.arange(len(found))
    expected = full[torch.arange(4), lengths - 1 + steps[:, None]]  # (steps, B, V)
    return {"error": largest_error([torch.stack(found)], [expected]), "tolerance": GENERATION}


@torch.no_grad()
def evaluation(name: str, task: Task, dim: int, device: torch.device) -> Row:
    """Count the sequences in which certified evaluation writes another token than plain greedy
    decoding; the head is widened so that an untrained model's choices vary."""
    model = build(name, task, dim).eval()
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
    return {"error": float(wrong), "tolerance": 0.0, "sequences": len(sequences)}


def twice(
    name: str, task: Task, dim: int, steps: int, device: torch.device, interrupted: bool
) -> Row:
    """Return the largest difference between the weights of two trainings of one cell."""
    recipe = Recipe(
        "twice", 1e-3, 64, steps=steps, optimizer="muon", dropout=0.1,
        validate_every=max(2, steps // 2), gradient_clip=1.0, average_decay=0.99,
    )  # fmt: skip
    weights, losses = [], []
    for stop_at in (None, steps // 2 if interrupted else None):
        with tempfile.TemporaryDirectory() as folder:
            trained = train(name, task, dim, recipe, device, Path(folder), stop_at)
        weights.append([p.detach() for p in trained.model.parameters()])
        losses.append(trained.state.curve[-1].validation_loss)
    error = largest_error(weights[1], weights[0])
    return {"error": error, "tolerance": None, "validation_losses": losses, "steps": steps}


def train(
    name: str,
    task: Task,
    dim: int,
    recipe: Recipe,
    device: torch.device,
    folder: Path,
    stop_at: int | None,
) -> Trainer:
    """Train a cell, stopping at ``stop_at`` and continuing as a new process would."""
    sets = [SequenceTensors(task.draw(0, s, 0, n), device) for s, n in ((2, 2000), (1, 200))]

    def fitted(stop: int | None) -> Trainer:
        model = build(name, task, dim, recipe.dropout).to(device)
        run = TrainingRun(model, recipe, 0, sets[0], sets[1], folder)
        trainer = Trainer(run, should_stop=lambda: trainer.state.step == stop)
        with contextlib.suppress(Interrupted):
            trainer.fit()
        return trainer

    if stop_at is not None:
        fitted(stop_at)
    return fitted(None)


if __name__ == "__main__":
    call(main)
