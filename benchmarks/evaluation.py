"""Exact evaluation against plain greedy generation: speed, and whether both write the same.

    python -m benchmarks evaluation                 # 10 operators, D = 128: hours of training
    python -m benchmarks evaluation size=6 dim=32 steps=1000
    python -m benchmarks evaluation trained=false

*Plain*: a full forward pass over the prefix for every token, in batches of 16, as CoT_benchmark
(Feng et al. 2023) does, except that finished sequences leave the batch. It is slow, so it writes
only `plain` of the `sequences`. CPU seconds of one thread. Models are trained first, as cells in
`runs_dir`.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.timing import RECORDS, UNUSED_FROM, print_rows, seconds_of, write_record
from benchmarks.training import config_of
from common import RunError
from evaluation.generate import Generation, generate
from evaluation.judge import judge
from experiments.run import initial_model, load_model, run_cell
from experiments.run_folder import Run
from models.transformer import Transformer
from tasks.sequences import EOS_ID, PAD_ID, SequenceSet
from tasks.task import Task, build_task
from training.data import SequenceTensors

PLAIN_BATCH = 16


def main(
    size: int = 10,  # operators
    dim: int = 128,
    models: tuple[str, ...] = ("standard", "sparse", "linear"),
    plain: int = 64,
    sequences: int = 5000,
    trained: bool = True,
    steps: int = 7000,
    train: int = 500_000,
    runs_dir: Path = Path("runs"),
    data_dir: Path = Path("data"),
    record: Path = RECORDS / "evaluation.json",
) -> None:
    torch.set_num_threads(1)
    rows = []
    for name in models:
        config = config_of(
            f"task=arithmetic task.size={size} model={name} model.dim={dim} recipe=fast"
            f" recipe.steps={steps} data.train={train} data.test=2000 device=cpu"
            f" runs_dir={runs_dir} data_dir={data_dir}"
        )
        task = build_task(config.task)
        if trained:
            run = Run.of(config)
            if run_cell(config) is None:
                raise RunError(f"{run.folder}: another process is training this model")
            model = load_model(config, task, run)
            rows.append(compare(model, task, plain, sequences, name, "trained"))
        fresh = initial_model(config, task)
        rows.append(compare(fresh, task, plain, sequences, name, "untrained"))
    print_rows("Exact evaluation against plain greedy generation", rows)
    setting = {"task": "arithmetic", "size": size, "dim": dim}
    write_record(record, {**setting, "rows": rows})


def compare(
    model: Transformer, task: Task, plain: int, sequences: int, name: str, state: str
) -> dict[str, Any]:
    """Seconds of both ways for one model, and how many sequences agree."""
    model = model.eval()
    few, many = task.draw(0, 0, UNUSED_FROM, plain), task.draw(0, 0, UNUSED_FROM, sequences)
    written, exact = plain_generation(model, few), generate(model, many)
    plain_seconds = seconds_of(lambda: plain_generation(model, few)) / plain
    exact_seconds = seconds_of(lambda: generate(model, many)) / sequences
    few_seconds = min(seconds_of(lambda: generate(model, few)) for _ in range(3)) / plain
    return {
        "model": name, "state": state,
        "answer_accuracy": float(judge(task, many, exact)[0].mean()),
        "plain_sequences": plain, "plain_seconds_per_sequence": plain_seconds,
        "sequences": sequences, "exact_seconds_per_sequence": exact_seconds,
        "ratio": plain_seconds / exact_seconds,
        "ratio_same_sequences": plain_seconds / few_seconds,
        "equal_sequences": equal(generate(model, few), written),
    }  # fmt: skip


@torch.inference_mode()
def plain_generation(model: Transformer, sequences: SequenceSet) -> Tensor:
    """Greedy generation in float32 that recomputes the prefix for every token, batched by prompt
    length: padded tokens (N, L + 1)."""
    data = SequenceTensors(sequences)
    written = torch.full((len(data), model.max_len + 1), PAD_ID)
    for rows in torch.argsort(data.prompt_lengths, stable=True).split(PLAIN_BATCH):
        lengths = data.prompt_lengths[rows].clone()  # (B,)
        tokens = data.tokens[rows].long()
        tokens[torch.arange(tokens.shape[1]) >= lengths[:, None]] = PAD_ID
        tokens = F.pad(tokens, (0, written.shape[1] - tokens.shape[1]))  # (B, L + 1)
        going = torch.arange(len(rows))  # (b,)
        while len(going):
            last = lengths[going] - 1
            hidden = model.hidden(tokens[going, : int(last.max()) + 1])  # (b, T, D)
            choice = model.head(hidden[torch.arange(len(going)), last]).argmax(-1)
            tokens[going, lengths[going]] = choice
            lengths[going] += 1
            going = going[(choice != EOS_ID) & (lengths[going] <= model.max_len)]
        written[rows] = tokens
    return written


def equal(generation: Generation, written: Tensor) -> int:
    padding = (0, written.shape[1] - generation.tokens.shape[1])
    found = F.pad(torch.from_numpy(generation.tokens.astype(int)), padding)
    return int((found == written).all(1).sum())
