"""A training step against a plain module written as the ancestor's is, in one run.

python -m benchmarks training           table and benchmarks/records/training.json

Plain: float32, scores (B, H, T, T) written out, masked by comparing a buffer with 0 and softmaxed,
dropout on them, GELU spelled out by its tanh formula, logits at every position, every sequence
padded to L, AdamW.  Ours: the
same function as the trainer runs it (fused attention, head at the loss positions, batches
trimmed, `precision: auto`).  Both see the same Arithmetic sequences, batch 64.  "full" keeps
our batch at length L too, so that trimming does not count.
"""

from __future__ import annotations

import argparse
import functools
import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from files import write_json
from models.linear import LinearAttention
from models.sparse import SparseAttention
from models.standard import StandardAttention
from models.transformer import Transformer
from records.provenance import machine, source
from tasks.arithmetic import Arithmetic
from tasks.task import SequenceSet
from training.batches import Batch, SequenceTensors, flat_indices
from training.loss import masked_loss
from training.order import BatchOrder
from training.precision import autocast, resolve_precision

RECORD = Path(__file__).parent / "records" / "training.json"
SETTINGS = [(6, 64, 0.1), (10, 128, 0.1), (10, 256, 0.1), (10, 128, 0.0), (10, 256, 0.0)]
MIXERS: dict[str, Callable[..., Any]] = {
    "standard": StandardAttention,
    "sparse": SparseAttention,
    "linear": LinearAttention,
}
MIXER_SETTING = (16, (64, 128))  # operators, and the widths D at which mixers are compared
BATCH = 64
CPU = torch.device("cpu")


class SpelledGELU(nn.Module):
    """GELU by the tanh approximation, operation by operation."""

    def forward(self, x: Tensor) -> Tensor:
        """Return GELU of x, element by element."""
        inner = x + 0.044715 * torch.pow(x, 3.0)
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * inner))


class PlainBlock(nn.Module):
    """Pre-norm block with attention written out: x (B, T, D) to (B, T, D)."""

    mask: Tensor

    def __init__(self, dim: int, num_heads: int, max_len: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.norm_1, self.norm_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.ffn = nn.Sequential(nn.Linear(dim, 4 * dim), SpelledGELU(), nn.Linear(4 * dim, dim))
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("mask", torch.ones(max_len, max_len).tril())

    def forward(self, x: Tensor) -> Tensor:
        """Return x (B, T, D) after attention and feed-forward."""
        b, t, d = x.shape
        h = self.norm_1(x)
        q, k, v = (
            part.view(b, t, self.num_heads, -1).transpose(1, 2)  # (B, H, T, K)
            for part in self.qkv(h).split(d, dim=2)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, H, T, T)
        scores = scores.masked_fill(self.mask[:t, :t] == 0, float("-inf"))
        mixed = self.dropout(scores.softmax(-1)) @ v  # (B, H, T, K)
        x = x + self.dropout(self.out(mixed.transpose(1, 2).reshape(b, t, d)))
        return x + self.dropout(self.ffn(self.norm_2(x)))


class PlainTransformer(nn.Module):
    """tokens (B, T) to logits (B, T, V)."""

    def __init__(self, vocab_size: int, max_len: int, dim: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, dim)
        self.position = nn.Parameter(torch.zeros(max_len, dim), requires_grad=False)
        self.blocks = nn.Sequential(*(PlainBlock(dim, 4, max_len, dropout) for _ in range(3)))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab_size)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits (B, T, V) of tokens (B, T)."""
        x = self.embedding(tokens) + self.position[: tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print the table, write the record."""
    parser = argparse.ArgumentParser(prog="benchmarks training", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--record", type=Path, default=RECORD)
    options = parser.parse_args(argv)
    torch.set_num_threads(options.threads)
    rows = [
        measure_against_plain(operators, dim, dropout, options.repeats)
        for operators, dim, dropout in tqdm(SETTINGS, unit="setting", disable=None)
    ]
    operators, dims = MIXER_SETTING
    mixers = [measure_mixers(operators, dim, options.repeats) for dim in dims]
    print_tables(rows, mixers)
    about = {**source(), **machine(CPU), "threads": options.threads, "cores": os.cpu_count()}
    record = {"about": about, "against_plain": rows, "mixers": mixers}
    write_json(options.record, record)
    print(f"record: {options.record}")


def measure_against_plain(operators: int, dim: int, dropout: float, repeats: int) -> dict[str, Any]:
    """Return median milliseconds a step of the plain module, ours at full length, and ours."""
    task = Arithmetic(operators)
    sequences, order = some_data(task)
    plain = PlainTransformer(len(task.vocabulary), task.max_len, dim, dropout)
    ours = Transformer(len(task.vocabulary), task.max_len, dim, 3, 4, StandardAttention, dropout)
    precision = resolve_precision("auto", CPU, dim)
    steps = {
        "plain": stepper(plain, lambda i: plain_loss(plain, padded(sequences, order.indices(i)))),
        "full": stepper(ours, lambda i: loss(ours, padded(sequences, order.indices(i)), precision)),
        "ours": stepper(ours, lambda i: loss(ours, sequences.batch(order.indices(i)), precision)),
    }
    figures = in_turns(steps, repeats)
    return {
        "operators": operators,
        "max_len": task.max_len,
        "dim": dim,
        "dropout": dropout,
        "precision": precision,
        **{f"{name}_ms": value for name, value in figures.items()},
        "full_ratio": figures["plain"] / figures["full"],
        "ratio": figures["plain"] / figures["ours"],
    }


def measure_mixers(operators: int, dim: int, repeats: int) -> dict[str, Any]:
    """Return median milliseconds of our step for each mixer."""
    task = Arithmetic(operators)
    sequences, order = some_data(task)
    precision = resolve_precision("auto", CPU, dim)
    steps = {}
    for name, mixer in MIXERS.items():
        model = Transformer(len(task.vocabulary), task.max_len, dim, 3, 4, mixer)
        run = functools.partial(one_loss, model, sequences, order, precision)
        steps[name] = stepper(model, run)
    return {"dim": dim, "max_len": task.max_len, "precision": precision, **in_turns(steps, repeats)}


def one_loss(
    model: Transformer, sequences: SequenceTensors, order: BatchOrder, precision: str, step: int
) -> Tensor:
    """Return the loss of batch ``step`` as the trainer takes it."""
    return loss(model, sequences.batch(order.indices(step)), precision)


def some_data(task: Arithmetic) -> tuple[SequenceTensors, BatchOrder]:
    """Return sequences in the task's training mixture of sizes, and their batches."""
    mixture = task.training_mixture().items()
    parts = [task.draw(0, 2, 0, round(40 * BATCH * share), size=size) for size, share in mixture]
    sequences = SequenceTensors(
        SequenceSet(
            np.concatenate([part.tokens for part in parts]),
            np.concatenate([part.lengths for part in parts]),
            np.concatenate([part.prompt_lengths for part in parts]),
        )
    )
    return sequences, BatchOrder(len(sequences), BATCH, seed=0)


def padded(sequences: SequenceTensors, index: Tensor) -> Batch:
    """Return a batch at the full length L + 1, as the ancestor pads it."""
    tokens = sequences.tokens.index_select(0, index).long()
    target = torch.arange(1, tokens.shape[1])
    first = sequences.prompt_lengths.index_select(0, index)
    lengths = sequences.lengths.index_select(0, index)
    mask = (target >= first[:, None]) & (target < lengths[:, None])
    total = sequences.num_targets(index)
    return Batch(tokens, mask, flat_indices(first - 1, lengths - first, len(target), total))


def plain_loss(model: PlainTransformer, batch: Batch) -> Tensor:
    """Return the masked loss from logits at every position."""
    targets = batch.tokens[:, 1:].masked_fill(~batch.loss_mask, -100)
    logits = model(batch.tokens[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def loss(model: Transformer, batch: Batch, precision: str) -> Tensor:
    """Return the trainer's loss at ``precision``."""
    with autocast(precision, CPU):
        return masked_loss(model, batch)


def stepper(model: nn.Module, loss_of: Callable[[int], Tensor]) -> Callable[[int], None]:
    """Return a function that makes one whole update with AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)

    def step(number: int) -> None:
        optimizer.zero_grad(set_to_none=True)
        loss_of(number).backward()
        optimizer.step()

    return step


def in_turns(steps: dict[str, Callable[[int], None]], repeats: int) -> dict[str, float]:
    """Return the median milliseconds of each, taken in turns so that drift hits all alike.

    CPU time, shared out over the threads: on one thread, wall time of an idle machine.
    """
    threads = torch.get_num_threads()
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(repeats + 1):
        for name, step in steps.items():
            started = time.process_time()
            step(turn)
            if turn:  # the first warms up
                taken[name].append(1000 * (time.process_time() - started) / threads)
    return {name: statistics.median(values) for name, values in taken.items()}


def print_tables(rows: list[dict[str, Any]], mixers: list[dict[str, Any]]) -> None:
    """Print milliseconds a step and ratios."""
    print(f"{'D':>4} {'L':>4} {'dropout':>7} {'precision':>9} {'plain ms':>9} {'full ms':>8} "
          f"{'ours ms':>8} {'full x':>7} {'ours x':>7}")  # fmt: skip
    for row in rows:
        print(f"{row['dim']:>4} {row['max_len']:>4} {row['dropout']:>7} {row['precision']:>9} "
              f"{row['plain_ms']:>9.0f} {row['full_ms']:>8.0f} {row['ours_ms']:>8.0f} "
              f"{row['full_ratio']:>7.2f} {row['ratio']:>7.2f}")  # fmt: skip
    print(f"\n{'D':>4} {'L':>4} " + " ".join(f"{name + ' ms':>12}" for name in MIXERS))
    for row in mixers:
        figures = " ".join(f"{row[name]:>12.0f}" for name in MIXERS)
        print(f"{row['dim']:>4} {row['max_len']:>4} {figures}")


if __name__ == "__main__":
    main()
