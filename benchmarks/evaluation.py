"""What certified evaluation gains on plain greedy generation, and whether it stays exact.

    python -m benchmarks evaluation                        # benchmarks/records/evaluation.json
    python -m benchmarks evaluation --operators 6 --models standard --plain-sequences 32

For each model, trained and untrained, on Arithmetic: seconds of plain generation (every token by
a full forward pass over the whole prefix, in batches of 16, as in CoT_benchmark, Feng et al. 2023)
and of certified evaluation over the same sequences in the same run, and whether both write the same
tokens. Plain generation is slow, so it is timed on few sequences; certified evaluation on these and
on more.

The plain way is timed twice: as CoT_benchmark does it (a batch goes on until its last sequence has
ended) and at its best (sequences that have ended leave the batch).

Seconds are CPU seconds of one thread (on an idle machine: wall time), so that a busy machine does
not bend ratios; only the evaluation of many sequences by two processes is given in wall time.
Models that are missing are trained first, as a cell is, into --directory; an interrupted training
goes on when called again.  That is what takes long: at D = 128 ten operators need an hour of one
core for sparse and for linear attention, ten minutes for standard.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import multiprocessing
import os
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from config.build import build_task, initial_model
from config.compose import compose_plain
from config.files import read_config
from config.identity import cell_name
from config.schema import CellConfig, validate_cell
from records.provenance import machine, source
from sweeps.cell import run_cell
from sweeps.weights import model_of
from torch import Tensor
from tqdm import tqdm

from benchmarks.shared.report import RECORDS
from benchmarks.shared.timing import peak_bytes, reset_peak
from common import RunError, write_json
from evaluation.generation import Generation, generate
from evaluation.judge import judge
from models.transformer import Transformer
from tasks.task import EOS_ID, SequenceSet, Task
from training.batches import SequenceTensors

MODELS = ("standard", "sparse", "linear")
PLAIN_BATCH = 16  # CoT_benchmark's
FIRST = 10**6  # sequences from here on in the test stream: no cell is tested or trained on them
MEMORY = ["64:2000", "64:8000", "256:2000", "256:8000"]
Result = TypeVar("Result")
WANTED = {"trained": 100, "untrained": 10}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the benchmark; see the module's first lines."""
    options = parse(argv)
    torch.set_num_threads(1)
    rows, many, memory = [], [], []
    for model in options.models:
        for state in states(options):
            rows.append(compare(model, state, options))
            print(row_line(rows[-1]), flush=True)
        if options.many:
            many.append(evaluate_many(model, options))
            print(many_line(many[-1]), flush=True)
    for memory_mb, count in options.memory:
        memory.append(measure_memory(options.models[0], memory_mb, count, options))
        print(memory_line(memory[-1]), flush=True)
    path = options.records / "evaluation.json"
    write_json(path, updated(path, options, {"rows": rows, "many": many, "memory": memory}))
    print(f"written: {path}")


def updated(path: Path, options: argparse.Namespace, new: dict[str, list]) -> dict[str, list]:
    """Return the record with ``new`` rows instead of those of the same models, in the same state
    of training, at the same memory and number of sequences where these are what is measured.

    Every row says under which setting it was taken.
    """
    old = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    taken = setting(options)
    record = {}
    for part, rows in new.items():
        measured = {_key(part, row) for row in rows}
        kept = [row for row in old.get(part, []) if _key(part, row) not in measured]
        record[part] = kept + [{**row, "setting": taken} for row in rows]
        record[part].sort(key=lambda row: (MODELS.index(row["model"]), _key(part, row)))
    return record


def _key(part: str, row: dict) -> tuple:
    """Return what a row of ``part`` measures: a later one of the same takes its place."""
    names = ("memory_mb", "sequences") if part == "memory" else ("state",)
    return (row["model"], *(row[name] for name in names))


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.evaluation", description=__doc__)
    add = parser.add_argument
    add("--models", nargs="+", default=list(MODELS), choices=MODELS)
    add("--operators", type=int, default=10)
    add("--dim", type=int, default=128)
    add("--plain-sequences", type=int, default=64, help="generated plainly, too")
    add("--sequences", type=int, default=5000, help="evaluated")
    add("--many", type=int, default=100_000, help="evaluated by two processes; 0: leave out")
    add("--steps", type=int, default=7000, help="training steps of a model that is missing")
    add("--train", type=int, default=500_000, help="sequences to train on")
    add("--directory", type=Path, default=Path("runs/evaluation-benchmark"))
    add("--checkpoint", nargs="*", default=[], metavar="MODEL=RUN_FOLDER", help="trained models")
    add("--untrained-only", dest="trained", action="store_false")
    add("--memory", nargs="*", default=MEMORY, metavar="MB:SEQUENCES", help="memory to measure")
    add("--records", type=Path, default=RECORDS)
    options = parser.parse_args(argv)
    options.checkpoint = dict(word.split("=", 1) for word in options.checkpoint)
    options.memory = [tuple(map(int, word.split(":"))) for word in options.memory]
    return options


def cell_config(model: str, options: argparse.Namespace) -> CellConfig:
    """Return the cell that is trained for the benchmark."""
    words = f"""task=arithmetic task.size={options.operators} model={model} model.dim={options.dim}
        recipe=fast recipe.steps={options.steps} recipe.stop_at=0.97 logger=none
        data.train={options.train} data.test=2000
        experiment_name=null runs_dir={options.directory}""".split()
    return validate_cell(compose_plain("train", words))


def trained_model(name: str, options: argparse.Namespace) -> tuple[Transformer, Task, dict]:
    """Return model, task and what is known of the training; train it when it is missing."""
    if name in options.checkpoint:
        folder = Path(options.checkpoint[name])
        config, _ = read_config(folder / "config.yaml")
        config = dataclasses.replace(config, runs_dir=str(folder.absolute().parent))
    else:
        config = cell_config(name, options)
        folder = Path(config.runs_dir) / cell_name(config)
        if run_cell(config) is None:
            raise RunError(f"{folder}: another process trains this model just now")
    record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    task = build_task(config.task)
    keys = ("cell", "steps", "stopped", "train_seconds", "answer_accuracy")
    return model_of(config, task), task, {key: record[key] for key in keys}


def states(options: argparse.Namespace) -> list[str]:
    """Return the states of training in which a model is measured."""
    return ["trained", "untrained"] if options.trained else ["untrained"]


def untrained_model(name: str, options: argparse.Namespace) -> tuple[Transformer, Task, dict]:
    """Return a model as it is before training."""
    config = cell_config(name, options)
    task = build_task(config.task)
    return initial_model(config, task, torch.device("cpu")), task, {}


LOADERS = {"trained": trained_model, "untrained": untrained_model}


def compare(name: str, state: str, options: argparse.Namespace) -> dict:
    """Time plain and certified generation of one model on the same sequences; compare them."""
    model, task, training = LOADERS[state](name, options)
    model = model.eval()
    few = task.draw(0, 0, FIRST, options.plain_sequences)
    more = task.draw(0, 0, FIRST, options.sequences)
    plain_seconds, written = timed(lambda: plain_generation(model, few, leave=False))
    leaving_seconds, again = timed(lambda: plain_generation(model, few, leave=True))
    few_seconds = min(timed(lambda: generate(model, few))[0] for _ in range(3))
    generation = generate(model, few)
    seconds, whole = timed(lambda: generate(model, more))
    return {
        "model": name,
        "state": state,
        "training": training,
        "max_len": task.max_len,
        "mean_length": float(few.lengths.mean()),
        "answer_accuracy": float(judge(task, more, whole)[0].mean()),
        "certified_share": whole.certified / len(more),
        "close_calls": whole.close_calls,
        "plain_sequences": len(few),
        "plain_seconds_per_sequence": plain_seconds / len(few),
        "plain_leaving_seconds_per_sequence": leaving_seconds / len(few),
        "sequences": len(more),
        "certified_seconds_per_sequence": seconds / len(more),
        "certified_few_seconds_per_sequence": few_seconds / len(few),
        "ratio": plain_seconds / len(few) / (seconds / len(more)),
        "ratio_leaving": leaving_seconds / len(few) / (seconds / len(more)),
        "ratio_same_sequences": plain_seconds / few_seconds,
        "wanted": WANTED[state],
        "equal_sequences": equal(generation, written),
        "equal_sequences_leaving": equal(generation, again),
    }


@torch.inference_mode()
def plain_generation(model: Transformer, sequences: SequenceSet, leave: bool) -> list[list[int]]:
    """Greedy generation in float32, the whole prefix again for every token.

    ``leave``: sequences that have ended leave the batch; otherwise, as in CoT_benchmark, the batch
    goes on until all have.  Sequences are batched by the length of their prompts.
    """
    data = SequenceTensors(sequences)
    order = torch.argsort(data.prompt_lengths, stable=True)
    written: list[list[int]] = [[] for _ in range(len(data))]
    for rows in tqdm(order.split(PLAIN_BATCH), desc="plain", disable=None, leave=False):
        for row, tokens in zip(rows.tolist(), plain_batch(model, data, rows, leave), strict=True):
            written[row] = tokens
    return written


def plain_batch(
    model: Transformer, data: SequenceTensors, rows: Tensor, leave: bool
) -> list[list[int]]:
    """Generate one batch; see `plain_generation`."""
    lengths = data.prompt_lengths[rows].clone()  # (B,)
    tokens = torch.zeros(len(rows), model.max_len + 1, dtype=torch.long)  # (B, L + 1)
    prompts = data.tokens[rows].long()
    real = torch.arange(prompts.shape[1]) < lengths[:, None]
    tokens[:, : prompts.shape[1]] = prompts * real
    going = torch.ones(len(rows), dtype=torch.bool)
    while going.any():
        batch = torch.nonzero(going).flatten() if leave else torch.arange(len(rows))
        last = (lengths[batch] - 1).clamp(max=model.max_len - 1)
        hidden = model.hidden(tokens[batch, : int(last.max()) + 1])  # (b, T, D)
        choice = model.head(hidden[torch.arange(len(batch)), last]).argmax(-1)
        chosen = torch.zeros_like(lengths).index_put((batch,), choice)
        tokens[going, lengths[going]] = chosen[going]
        lengths[going] += 1
        going &= (tokens[torch.arange(len(rows)), lengths - 1] != EOS_ID) & (
            lengths <= model.max_len
        )
    return [row[:length].tolist() for row, length in zip(tokens, lengths.tolist(), strict=True)]


def equal(generation: Generation, written: list[list[int]]) -> int:
    """Count the sequences that both ways write token for token alike."""
    lengths = generation.lengths.tolist()
    rows = [row[:length].tolist() for row, length in zip(generation.tokens, lengths, strict=True)]
    return sum(a == b for a, b in zip(rows, written, strict=True))


def timed(function: Callable[[], Result]) -> tuple[float, Result]:
    """Return CPU seconds and what the function returns."""
    begin = time.process_time()
    result = function()
    return time.process_time() - begin, result


def evaluate_many(name: str, options: argparse.Namespace) -> dict:
    """Evaluate ``options.many`` sequences by two processes of one thread each; wall seconds.

    By the trained model, else by the untrained, whose every chain has to be generated: a tenth
    of them, then, and the whole is extrapolated.
    """
    state = "trained" if "trained" in states(options) else "untrained"
    many = options.many if state == "trained" else math.ceil(options.many / 10)
    halves = [many // 2, many - many // 2]
    jobs = [(name, state, options, FIRST + sum(halves[:i]), half) for i, half in enumerate(halves)]
    begin = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(len(jobs)) as pool:
        parts = pool.starmap(evaluate_part, jobs)
    wall = time.perf_counter() - begin
    return {
        "model": name,
        "state": state,
        "sequences": many,
        "processes": len(jobs),
        "wall_seconds": wall,
        "cpu_seconds": sum(seconds for seconds, _ in parts),
        "cpu_seconds_of_parts": [seconds for seconds, _ in parts],
        "answer_accuracy": float(np.concatenate([right for _, right in parts]).mean()),
        "extrapolated_to_100000_seconds": wall * 100_000 / many,
    }


def evaluate_part(
    name: str, state: str, options: argparse.Namespace, first: int, count: int
) -> tuple[float, np.ndarray]:
    """Evaluate ``count`` sequences in this process: CPU seconds, right answers (count,) bool."""
    torch.set_num_threads(1)
    model, task, _ = LOADERS[state](name, options)
    sequences = task.draw(0, 0, first, count)
    seconds, right = timed(lambda: judge(task, sequences, generate(model, sequences))[0])
    return seconds, right


def measure_memory(name: str, memory_mb: float, count: int, options: argparse.Namespace) -> dict:
    """Peak bytes that evaluating an untrained model adds to a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        peak = pool.apply(peak_of_evaluation, (name, memory_mb, count, options))
    return {"model": name, "memory_mb": memory_mb, "sequences": count, "peak_mb": peak / 2**20}


def peak_of_evaluation(name: str, memory_mb: float, count: int, options: argparse.Namespace) -> int:
    """Evaluate in this process; return how far memory rose above where it stood."""
    torch.set_num_threads(1)
    model, task, _ = untrained_model(name, options)
    sequences = task.draw(0, 0, FIRST, count)
    generate(model, task.draw(0, 0, FIRST, 2), memory_mb=1)  # libraries loaded
    before = reset_peak()
    generate(model, sequences, memory_mb)
    return peak_bytes() - before


def row_line(row: dict) -> str:
    """One line of the printed table."""
    return (
        f"{row['model']:>9} {row['state']:>9} accuracy {row['answer_accuracy']:6.1%}: plain "
        f"{1e3 * row['plain_seconds_per_sequence']:.0f} ms a sequence "
        f"(at best {1e3 * row['plain_leaving_seconds_per_sequence']:.0f}), certified "
        f"{1e3 * row['certified_seconds_per_sequence']:.2f} ms: {row['ratio']:.0f} times "
        f"({row['ratio_leaving']:.0f}; wanted {row['wanted']}); equal "
        f"{row['equal_sequences']} of {row['plain_sequences']}"
    )


def many_line(row: dict) -> str:
    """One line on the evaluation of many sequences."""
    said = f"{row['sequences']:,} sequences in {row['wall_seconds']:.0f} s"
    if row["sequences"] != 100_000:
        said += f" (extrapolated: 100,000 in {row['extrapolated_to_100000_seconds']:.0f} s)"
    return (
        f"{row['model']:>9} {row['state']:>9}: {said}, {row['processes']} processes, "
        f"{row['cpu_seconds']:.0f} CPU s, accuracy {100 * row['answer_accuracy']:.2f} %"
    )


def memory_line(row: dict) -> str:
    """One line on memory."""
    return (
        f"{row['model']:>9} untrained: evaluation_memory_mb={row['memory_mb']}, "
        f"{row['sequences']:,} sequences: peak {row['peak_mb']:.0f} MiB above the start"
    )


def setting(options: argparse.Namespace) -> dict:
    """What the figures depend on."""
    return {
        "task": f"arithmetic, {options.operators} operators",
        "dim": options.dim,
        "plain_batch": PLAIN_BATCH,
        "threads": 1,
        "seconds": "CPU seconds, except wall_seconds",
        "torch": torch.__version__,
        "processor": machine(torch.device("cpu"))["device"],
        "cores": os.cpu_count(),
        "host": platform.node(),
        "load_average": list(os.getloadavg()),
        **source(),
        "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


if __name__ == "__main__":
    main()
