"""Each model's training step against standard attention's and a plain PyTorch module's.

    python -m benchmarks training                              # recipe=fast, D = 32 and 128
    python -m benchmarks training models=gla,mamba2 dims=64 size=6
    python -m benchmarks training recipe=paper device=cuda compile=true precision=bfloat16

*Plain* is a transformer as CoT_benchmark (Feng et al. 2023) writes it, padded to L, in float32 by
AdamW. The others are the trainer's whole step. All see the same Arithmetic sequences in batches of
64 and take turns; ratios are those of medians. FLOPs are counted without padding; `share` is
relative to one large matrix product in the same precision.
"""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from benchmarks.timing import RECORDS, median_seconds, print_rows, write_record
from common import CONF_DIR
from experiments.config import CellConfig
from experiments.grid import cell_of
from experiments.row import flops_per_sequence
from experiments.run import initial_model
from tasks.sampling import draw_set
from tasks.sequences import SequenceSet
from tasks.task import Task, build_task
from training.device import Machine, resolve_device
from training.trainer import Trainer

# All of conf/model but tensor, whose time is cubic in L.
MODELS = tuple(sorted({path.stem for path in (CONF_DIR / "model").glob("*.yaml")} - {"tensor"}))
IGNORED = -100  # PyTorch's default
MATMUL = {"cuda": (8192, 30), "cpu": (1024, 10)}  # size of the product, repeats


def main(
    size: int = 10,  # operators
    dims: tuple[int, ...] = (32, 128),
    models: tuple[str, ...] = MODELS,
    recipe: str = "fast",
    precision: str = "float32",
    batch: int = 64,
    repeats: int = 9,
    device: str = "cpu",
    compile: bool = False,
    threads: int = 1,
    record: Path = RECORDS / "training.json",
) -> None:
    torch.set_num_threads(threads)
    machine = Machine(device=device, compile=compile, threads=threads)
    place = resolve_device(device)
    cell = f"task=arithmetic task.size={size} recipe={recipe} recipe.batch_size={batch}"
    cell += f" recipe.precision={precision}"
    rows: list[dict[str, Any]] = []
    for dim in tqdm(dims, unit="dim", disable=None):
        names = dict.fromkeys(("standard", *models))
        configs = {name: config_of(f"{cell} model={name} model.dim={dim}") for name in names}
        rows += time_steps(configs, repeats, machine)
    ceiling = matmul_tflops(precision, place)
    rows = [{**row, "share": row["tflops"] and row["tflops"] / ceiling} for row in rows]
    setting = {"task": "arithmetic", "size": size, "recipe": recipe, "batch": batch}
    setting |= {"precision": precision, "compile": compile, "matmul_tflops": ceiling}
    print_rows(f"A training step; one matrix product: {ceiling:.3g} TFLOP/s", rows)
    write_record(record, {**setting, "rows": rows}, place)


def matmul_tflops(precision: str, device: torch.device) -> float:
    size, repeats = MATMUL[device.type]
    a, b = torch.randn(2, size, size, device=device).to(getattr(torch, precision))
    seconds = median_seconds({"": lambda: a @ b}, repeats, device, warm_up=3)[""]
    return 2 * size**3 / seconds / 1e12


def config_of(words: str) -> CellConfig:
    """The cell that `python train.py WORDS` runs, without W&B."""
    return cell_of(["logger=none", *words.split()]).config


def time_steps(
    configs: dict[str, CellConfig], repeats: int, machine: Machine
) -> list[dict[str, Any]]:
    """A row per model and one for the plain module, fastest first."""
    config, device = configs["standard"], resolve_device(machine.device)
    task, dim = build_task(config.task), config.model.dim
    data = draw_set(task, "train", 40 * config.recipe.batch_size)
    plain = PlainTransformer(len(task.vocabulary), task.max_len, dim, config.recipe.dropout)
    steps = {"plain": plain_step(plain.to(device), data, config.recipe.batch_size)}
    trainers = {name: trainer_of(own, task, data, machine) for name, own in configs.items()}
    steps |= {name: trainer.step for name, trainer in trainers.items()}
    batch = config.recipe.batch_size
    flops = {name: batch * flops_per_sequence(trainer) for name, trainer in trainers.items()}
    found = median_seconds(steps, repeats, device, warm_up=2)
    return [
        {
            "model": name, "dim": dim, "max_len": task.max_len, "milliseconds": 1000 * seconds,
            "over_standard": seconds / found["standard"], "plain_over": found["plain"] / seconds,
            "tflops": flops[name] / seconds / 1e12 if name in flops else None,
        }
        for name, seconds in sorted(found.items(), key=lambda item: item[1])
    ]  # fmt: skip


def trainer_of(config: CellConfig, task: Task, sequences: SequenceSet, machine: Machine) -> Trainer:
    """A trainer whose `step` can be called any number of times."""
    recipe = dataclasses.replace(config.recipe, steps=10**9, epochs=None)
    model = initial_model(config, task)
    return Trainer(model, recipe, config.seed, sequences, sequences, Path(), machine)


class PlainTransformer(nn.Module):
    """Tokens (B, T) to logits (B, T, V): three pre-norm blocks of four heads."""

    def __init__(self, vocab_size: int, max_len: int, dim: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, dim)
        self.position = nn.Parameter(torch.zeros(max_len, dim), requires_grad=False)
        self.blocks = nn.Sequential(*(PlainBlock(dim, 4, max_len, dropout) for _ in range(3)))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocab_size)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens) + self.position[: tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))


class PlainBlock(nn.Module):
    """Attention with explicit scores, and a feed-forward network."""

    mask: Tensor

    def __init__(self, dim: int, num_heads: int, max_len: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.norm_1, self.norm_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("mask", torch.ones(max_len, max_len).tril())

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = (
            part.view(b, t, self.num_heads, -1).transpose(1, 2)  # (B, H, T, K)
            for part in self.qkv(self.norm_1(x)).split(d, dim=2)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, H, T, T)
        scores = scores.masked_fill(self.mask[:t, :t] == 0, float("-inf"))
        mixed = self.dropout(scores.softmax(-1)) @ v  # (B, H, T, K)
        x = x + self.dropout(self.out(mixed.transpose(1, 2).reshape(b, t, d)))
        h = self.up(self.norm_2(x))
        gelu = 0.5 * h * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (h + 0.044715 * h**3)))
        return x + self.dropout(self.down(gelu))


def plain_step(
    model: PlainTransformer, sequences: SequenceSet, batch_size: int
) -> Callable[[], None]:
    device = model.head.weight.device
    inputs, targets = (x.to(device) for x in padded(sequences))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)

    def step() -> None:
        index = torch.randint(len(inputs), (batch_size,), device=device)
        optimizer.zero_grad(set_to_none=True)
        plain_loss(model, inputs[index], targets[index]).backward()
        optimizer.step()

    return step


def plain_loss(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten(), ignore_index=IGNORED)


def padded(sequences: SequenceSet) -> tuple[Tensor, Tensor]:
    """Inputs and targets (N, L) at full width; targets in prompt and padding are `IGNORED`."""
    tokens = torch.from_numpy(sequences.tokens.astype("int64"))
    place = torch.arange(1, tokens.shape[1])
    first = torch.as_tensor(sequences.prompt_lengths)[:, None]
    end = torch.as_tensor(sequences.lengths)[:, None]
    counts = (place >= first) & (place < end)
    return tokens[:, :-1], tokens[:, 1:].masked_fill(~counts, IGNORED)
