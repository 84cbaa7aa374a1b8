"""Made-up results tables for the tests of the figures.  No number here was measured."""

from __future__ import annotations

import itertools
import json
from types import SimpleNamespace

import numpy as np
import pandas as pd

MAX_LEN = {
    "arithmetic": lambda n: 2 * n * n + 2 * n + 1,
    "lis": lambda n: 2 * n + 3,
    "ed": lambda n: n * n + 5 * n + 6,
    "ed_local": lambda n: 2 * n * n + 8 * n + 6,
}
FACTOR = {"standard": 12, "linear": 40, "sparse": 20}


def experiment(name="example", **fields):
    """Return what a figure needs of an experiment."""
    values = {
        "description": "made up",
        "command": f"python sweep.py experiment={name}",
        "figures": [],
        "budget": "100,000 training sequences, 1,500 steps of 64",
    }
    return SimpleNamespace(name=name, **(values | fields))


def accuracy(task, model, size, dim, seed):
    """A smooth made-up accuracy: needs D near FACTOR * L**(1/4)."""
    length = MAX_LEN.get(task, lambda n: 10 * n)(size)
    needed = FACTOR.get(model, 30) * length**0.25
    value = 1 / (1 + np.exp(-3.0 * (np.log2(dim / needed) + 0.75)))
    return float(np.clip(np.round(value + 0.01 * (seed - 1) * value * (1 - value) * 8, 4), 0, 1))


def row(task="arithmetic", model="standard", size=6, dim=64, seed=0, **fields):
    """Return one row of a results table; ``fields`` override."""
    length = MAX_LEN.get(task, lambda n: 10 * n)(size)
    layers = fields.get("layers", 3)
    mixing = {"standard": length, "sparse": 2 * int(length**0.5), "linear": dim // 2}
    value = accuracy(task, model, size, dim, seed)
    linear_layers = 2 * 12 * layers * dim * dim * length
    cell = f"{task}-{model}-{size}-{dim}-{seed}-{layers}"
    values = {
        "task": task, "size": size, "format": "cot", "max_len": length, "model": model,
        "layers": layers, "heads": 4, "dim": dim, "seed": seed, "recipe": "fast",
        "status": "done", "answer_accuracy": value,
        "answer_accuracy_low": max(0.0, value - 0.01), "answer_accuracy_high": min(1, value + 0.01),
        "chain_exact_match": value * 0.95, "n_test": 1000, "steps": 1500,
        "train_seconds": dim * 1.5, "eval_seconds": 2.0, "params": 36 * dim * dim,
        "flops_linear_layers": linear_layers,
        "flops_total": linear_layers + 4 * layers * dim * length * mixing.get(model, length),
        "state_bytes": 8 * layers * dim * length, "device": "cpu", "cell": cell,
        "commit": "0123456789ab", "finished_at": "2030-01-01T00:00:00+00:00",
    }  # fmt: skip
    return values | fields


def unmeasured(status, **fields):
    """Return a row without a result."""
    names = [
        "answer_accuracy",
        "answer_accuracy_low",
        "answer_accuracy_high",
        "chain_exact_match",
        "n_test",
        "eval_seconds",
    ]
    reason = "loss is not finite at step 12" if status == "failed" else "time limit"
    return row(**fields) | dict.fromkeys(names, np.nan) | {"status": status, "reason": reason}


def product(tasks, models, sizes, dims, seeds=(0,), **fields):
    """Return a full table over a product; ``sizes`` is a mapping task -> sizes or a list."""
    rows = [
        row(task, model, size, dim, seed, **fields)
        for task in tasks
        for model, size, dim, seed in itertools.product(
            models, sizes[task] if isinstance(sizes, dict) else sizes, dims, seeds
        )
    ]
    return pd.DataFrame(rows)


def plan_of(table):
    """Return the plan that has exactly the rows of ``table``."""
    columns = ["task", "size", "model", "layers", "dim", "recipe", "seed", "format", "cell"]
    return table[columns].copy()


def quick():
    """The quick experiment's shape: 1 task, 3 models, sizes 2 to 4, D 8 to 64."""
    return product(["arithmetic"], ["standard", "linear", "sparse"], [2, 3, 4], [8, 16, 32, 64])


def figure_1(seeds=(0,)):
    """Figure 1's shape: 3 tasks, 3 models."""
    sizes = {"arithmetic": [6, 10, 13, 16], "ed": [6, 12, 16, 20], "lis": [40, 110, 175, 250]}
    table = product(
        ["arithmetic", "ed", "lis"],
        ["standard", "linear", "sparse"],
        sizes,
        [32, 64, 128, 256, 512, 1024],
        seeds,
    )
    return table[~((table["task"] == "arithmetic") & (table["dim"] == 1024))].reset_index(drop=True)


def write_attachments(table, folder):
    """Write made-up curves, error records and configs for the rows of ``table``."""
    for name in ("curves", "errors", "configs"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for item in table[table["status"] == "done"].itertuples():
        steps = np.arange(0, item.steps + 1, 150)
        exact = item.chain_exact_match * (1 - np.exp(-steps / (4000 / item.dim)))
        pd.DataFrame({
            "step": steps, "seconds": steps * item.dim / 500, "train_loss": np.exp(-steps / 300.0),
            "validation_loss": np.exp(-steps / 300.0), "validation_chain_exact_match": exact,
            "learning_rate": 1e-3,
        }).to_csv(folder / "curves" / f"{item.cell}.csv", index=False)  # fmt: skip
        length, reached, places = int(item.max_len) // 2, 1000, []
        for position in range(length):
            missed = int(reached * (1 - item.chain_exact_match) * 3 / (length + 3))
            places.append([position, missed, reached])
            reached -= missed
        record = {
            "by_position": places, "by_step": places[:: max(1, length // item.size)],
            "answer_right_chain_wrong": 3, "answer_wrong_chain_right": 0,
        }  # fmt: skip
        (folder / "errors" / f"{item.cell}.json").write_text(json.dumps(record))
        (folder / "configs" / f"{item.cell}.yaml").write_text(f"seed: {item.seed}\n")
