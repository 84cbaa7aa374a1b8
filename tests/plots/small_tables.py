"""Results tables small enough to check by hand."""

from typing import Any

import pandas as pd
from hypothesis import strategies as st

ACCURACY_BY_DIM = st.dictionaries(st.integers(1, 512), st.floats(0, 1), min_size=1, max_size=8)
DEFAULTS: dict[str, Any] = {
    "task": "lis", "size": 4, "format": "cot", "max_len": 11, "model": "standard", "layers": 3,
    "heads": 4, "seed": 0, "recipe": "fast", "status": "done", "stopped": "budget",
    "chain_exact_match": 0.5, "chance_accuracy": 0.1, "n_test": 1000, "steps": 1000,
    "steps_to_90": 500.0, "still_improving": False, "train_seconds": 3600.0, "eval_seconds": 0.0,
    "params": 1000, "flops_linear_layers": 100, "flops_total": 200, "flops_training": 5000,
    "state_bytes": 64, "precision": "float32", "device": "cpu: AMD EPYC", "commit": "abc",
    "finished_at": "2026-11-22",
}  # fmt: skip


def row(dim: int, accuracy: float, **settings: Any) -> dict[str, Any]:
    """Return one measurement; `settings` override the defaults."""
    line = {**DEFAULTS, "dim": dim, "answer_accuracy": accuracy, **settings}
    line |= {"answer_accuracy_low": accuracy - 0.01, "answer_accuracy_high": accuracy + 0.01}
    name = "-".join(str(line[key]) for key in ("task", "size", "model", "heads", "dim", "seed"))
    return {"run": name, "cell": name, **line}


def cells(by_dim: dict[int, list[float]], **settings: Any) -> pd.DataFrame:
    """Return one row per D and seed, from the accuracies of the seeds of each D."""
    rows = [
        row(dim, accuracy, seed=seed, **settings)
        for dim, seeds in by_dim.items()
        for seed, accuracy in enumerate(seeds)
    ]
    return pd.DataFrame(rows)


def joined(*tables: pd.DataFrame) -> pd.DataFrame:
    return pd.concat(tables, ignore_index=True)
