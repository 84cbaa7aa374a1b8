"""Several seeds of a cell as one stacked model, against one after another, on one thread.

python -m benchmarks seeds [--seeds 3]          table and benchmarks/records/seeds.json

Stacked: the seeds' parameters have a leading seed axis (`torch.func.stack_module_state`), one
`vmap` of the loss does every product for all seeds at once, the optimisers step once.  Each seed
keeps its own batches, so that its weights are those of a run by itself; batches are trimmed to the
longest sequence, which is then the longest of all seeds' batches.  "alike" gives all seeds one
batch, as if that cost nothing.  One after another: the trainer's own step, a seed at a time.

Milliseconds of CPU time for one step of all seeds, Arithmetic with 3 operators, batch 64.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, grad_and_value, stack_module_state, vmap
from torch.nn import functional as F
from tqdm import tqdm

from benchmarks.training import BATCH, CPU, MIXERS, some_data
from config.compose import compose_plain
from config.schema import validate_cell
from files import write_json
from models.transformer import Transformer
from records.provenance import machine, source
from tasks.arithmetic import Arithmetic
from training.batches import Batch, BatchOrder, SequenceTensors
from training.optimizers import build_optimizer, optimizer_by_role
from training.recipe import Recipe
from training.trainer import masked_loss

RECORD = Path(__file__).parent / "records" / "seeds.json"
OPERATORS = 3
DIMS = (16, 32)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print the table, write the record."""
    parser = argparse.ArgumentParser(prog="benchmarks seeds", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--record", type=Path, default=RECORD)
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    settings = [(name, dim) for dim in DIMS for name in MIXERS]
    rows = [
        measure(name, dim, options.seeds, options.repeats)
        for name, dim in tqdm(settings, unit="setting", disable=None)
    ]
    print_table(rows)
    about = {**source(), **machine(CPU), "threads": 1, "cores": os.cpu_count()}
    record = {"about": about, "seeds": options.seeds, "batch": BATCH, "rows": rows}
    write_json(options.record, record)
    print(f"record: {options.record}")


def measure(name: str, dim: int, seeds: int, repeats: int) -> dict[str, Any]:
    """Return median CPU milliseconds of one step of all seeds, each way, and their ratios."""
    apart, stacked, alike = (Seeds(name, dim, seeds) for _ in range(3))
    ways: dict[str, Callable[[int], object]] = {
        "apart": apart.step_apart,
        "stacked": stacked.step_stacked,
        "alike": lambda step: alike.step_stacked(step, alike=True),
    }
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(repeats + 2):
        for way, step in ways.items():
            started = time.process_time()
            step(turn)
            if turn >= 2:  # the first ones warm up
                taken[way].append(1000 * (time.process_time() - started))
    figures = {way: statistics.median(values) for way, values in taken.items()}
    return {
        "model": name,
        "dim": dim,
        **{f"{way}_ms": value for way, value in figures.items()},
        "stacked_ratio": figures["apart"] / figures["stacked"],
        "alike_ratio": figures["apart"] / figures["alike"],
    }


class Seeds:
    """The same cell under several seeds: to be stepped apart, or stacked, but not both."""

    def __init__(self, name: str, dim: int, seeds: int) -> None:
        self.recipe: Recipe = validate_cell(compose_plain("train", ["recipe=fast"])).recipe
        task = Arithmetic(OPERATORS)
        self.data, _ = some_data(task)
        self.orders = [BatchOrder(self.data.lengths, BATCH, seed) for seed in range(seeds)]
        self.models = [self._model(task, name, dim, seed) for seed in range(seeds)]
        self.optimizers = [build_optimizer(model, self.recipe) for model in self.models]
        self.stack = Stack(self.models, self.recipe)
        self.rate = self.recipe.learning_rate

    def _model(self, task: Arithmetic, name: str, dim: int, seed: int) -> Transformer:
        torch.manual_seed(seed)
        return Transformer(len(task.vocabulary), task.max_len, dim, 3, 4, MIXERS[name])

    def step_apart(self, step: int) -> list[float]:
        """Make step ``step`` of every seed as the trainer does; return the losses."""
        losses = []
        for model, optimizer, order in zip(self.models, self.optimizers, self.orders, strict=True):
            optimizer.set_learning_rate(self.rate)
            loss = masked_loss(model, self.data.batch(order.indices(step)))
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), self.recipe.gradient_clip or 1.0)
            optimizer.step()
            losses.append(loss.item())
        return losses

    def step_stacked(self, step: int, alike: bool = False) -> list[float]:
        """Make step ``step`` of all seeds at once; return the losses."""
        orders = self.orders[:1] * len(self.orders) if alike else self.orders
        index = torch.stack([order.indices(step) for order in orders])  # (S, B)
        return self.stack.step(stacked_batch(self.data, index), self.rate).tolist()


def stacked_batch(data: SequenceTensors, index: Tensor) -> Batch:
    """Return the batches ``index`` (S, B) with one width: tokens (S, B, T + 1)."""
    whole = data.batch(index.flatten())
    tokens, mask = (x.unflatten(0, index.shape) for x in (whole.tokens, whole.loss_mask))
    return dataclasses.replace(whole, tokens=tokens, loss_mask=mask)


class Stack:
    """Models of one shape as one, with a leading seed axis S on every parameter."""

    def __init__(self, models: Sequence[Transformer], recipe: Recipe) -> None:
        self.base = copy.deepcopy(models[0]).to("meta")
        self.parameters, buffers = stack_module_state(list(models))
        self.buffers = {name: held[0] for name, held in buffers.items()}
        self.gradients = vmap(grad_and_value(self.loss))
        self.clip = recipe.gradient_clip or 1.0
        roles = models[0].parameter_roles()
        self.rest = [name for name, role in roles.items() if role.kind != "hidden"]
        # Muon takes matrices: a view of every seed's; those of one shape go through it together.
        self.views = {
            name: list(self.parameters[name].detach().unbind())
            for name in roles
            if name not in self.rest
        }
        trained = [(view, roles[name]) for name, views in self.views.items() for view in views]
        trained += [(self.parameters[name], roles[name]) for name in self.rest]
        self.optimizer = optimizer_by_role(trained, recipe, models[0].dim)

    def loss(self, parameters: dict[str, Tensor], tokens: Tensor, mask: Tensor) -> Tensor:
        """Return one seed's mean loss over its targets; logits everywhere, `vmap` needs shapes."""
        logits = functional_call(self.base, (parameters, self.buffers), tokens[:, :-1])
        each = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
        return (each * mask.flatten()).sum() / mask.sum()

    def step(self, batch: Batch, rate: float) -> Tensor:
        """Update all seeds once; return their losses (S,)."""
        self.optimizer.set_learning_rate(rate)
        parameters = {name: p.detach() for name, p in self.parameters.items()}
        gradients, losses = self.gradients(parameters, batch.tokens, batch.loss_mask)
        self._clip(gradients)
        for name, views in self.views.items():
            for view, gradient in zip(views, gradients[name].unbind(), strict=True):
                view.grad = gradient
        for name in self.rest:
            self.parameters[name].grad = gradients[name]
        self.optimizer.step()
        return losses

    def _clip(self, gradients: dict[str, Tensor]) -> None:
        """Clip every seed's gradient by its own norm, as `clip_grad_norm_` does."""
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients.values()]).norm(dim=0)
        scale = (self.clip / (norms + 1e-6)).clamp(max=1.0)  # (S,)
        for gradient in gradients.values():
            gradient.mul_(scale.view(-1, *[1] * (gradient.ndim - 1)))


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print milliseconds of all seeds and how many times as fast stacking is."""
    print(f"{'model':>9} {'D':>4} {'apart ms':>9} {'stacked ms':>11} {'alike ms':>9} "
          f"{'stacked x':>10} {'alike x':>8}")  # fmt: skip
    for row in rows:
        print(f"{row['model']:>9} {row['dim']:>4} {row['apart_ms']:>9.1f} "
              f"{row['stacked_ms']:>11.1f} {row['alike_ms']:>9.1f} "
              f"{row['stacked_ratio']:>10.2f} {row['alike_ratio']:>8.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
