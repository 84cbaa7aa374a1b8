"""``datapackage.json``: what the columns of ``results.csv`` mean, for people and for programs.

A Frictionless Tabular Data Package (specs.frictionlessdata.io/tabular-data-package); any of its
readers gives the table with types, and validates it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd

from common import sha256_of, write_json
from records.reading import INTEGERS, NUMBERS, SHARES, STATUSES

MEANING = {
    "task": "name of the task",
    "size": "size of the measured sequences: operators, numbers or letters",
    "format": "cot: with a chain of thought; direct: the answer follows the prompt",
    "max_len": "tokens of the longest sequence of this task and size",
    "model": "name of the model",
    "layers": "number of layers",
    "heads": "number of attention heads",
    "dim": "embedding dimension D",
    "seed": "seed of initial weights and of the order of batches",
    "recipe": "how it was trained; constructed: it was not",
    "status": "done, failed, or unfinished (stopped from outside; it continues)",
    "reason": "why it is not done",
    "stopped": "what ended training: solved (early stopping) or budget",
    "answer_accuracy": "share of test sequences whose freely generated answer is right",
    "answer_accuracy_low": "lower end of its 95 % Wilson interval",
    "answer_accuracy_high": "upper end of its 95 % Wilson interval",
    "chain_exact_match": "share of test sequences whose every generated token is right",
    "chance_accuracy": "what always giving the most frequent answer would reach",
    "n_test": "number of sequences measured",
    "steps": "optimiser steps of the training",
    "steps_to_90": "steps to the first validation with 90 % of whole chains right, teacher-forced",
    "seconds_to_90": "seconds of training and validation until then",
    "train_seconds": "seconds (CPU: of its cores) of training and validation, all interruptions",
    "eval_seconds": "seconds of generating and judging",
    "params": "number of parameters",
    "flops_linear_layers": "FLOPs of one forward pass over max_len tokens, linear layers alone",
    "flops_total": "FLOPs of one forward pass over max_len tokens, attention included",
    "flops_training": "FLOPs of the whole training, padding not counted",
    "state_bytes": "bytes of generation state at max_len tokens, one sequence in float32",
    "padded_share": "share of padding among the tokens trained on",
    "precision": "number format of training",
    "device": "device that measured",
    "hostname": "machine that measured",
    "torch_version": "version of PyTorch",
    "data_fingerprint": "SHA-256 of the data sets' content",
    "weights": "name of the trained weights: a hash of what decides them",
    "cell": "name of the row: a hash of what decides the measurement; configs/<cell>.yaml holds it",
    "trained_commit": "commit of the code that ended the training",
    "trained_device": "device that trained, or those in turn; empty in older rows, where it is "
    "device, and where nothing was trained",
    "commit": "commit of the code that measured",
    "tree_dirty": "whether that code differed from its commit",
    "finished_at": "when the measurement ended, UTC",
    "config_digest": "first 16 hexadecimal digits of the SHA-256 of configs/<cell>.yaml",
    "curve_digest": "the same of curves/<cell>.csv",
    "errors_digest": "the same of errors/<cell>.json",
    "digest": "the same of the row's other values, a line each, sorted: an edited row is refused",
}


def write(table: pd.DataFrame, experiment: Any, folder: Path) -> Path:
    """Describe ``folder``/results.csv, which holds ``table``; return the file written."""
    source = folder / "results.csv"
    header = source.read_text(encoding="utf-8").partition("\n")[0].rstrip("\r").split(",")
    package = {
        "profile": "tabular-data-package",
        "name": re.sub(r"[^a-z0-9._-]+", "-", experiment.name.lower()),
        "title": f"cotcost: {experiment.name}",
        "description": experiment.description,
        "command": experiment.command,
        "budget": experiment.budget,
        "licenses": [{"name": "MIT"}],
        "resources": [
            {
                "profile": "tabular-data-resource",
                "name": "results",
                "description": "A row per measurement and seed. configs/<cell>.yaml, "
                "curves/<cell>.csv and errors/<cell>.json hold each row's configuration, "
                "learning curve (per weights) and mistakes.",
                "path": source.name,
                "encoding": "utf-8",
                "bytes": source.stat().st_size,
                "hash": f"sha256:{sha256_of(source)}",
                "schema": {
                    "fields": [field(name, table) for name in header],
                    "missingValues": [""],
                    "primaryKey": "cell",
                },
            }
        ],
    }
    path = folder / "datapackage.json"
    write_json(path, {key: value for key, value in package.items() if value})
    return path


def field(name: str, table: pd.DataFrame) -> dict[str, Any]:
    """Return the Table Schema field of a column."""
    told: dict[str, Any] = {"name": name, "type": _type(name, table)}
    told["description"] = MEANING.get(name, "a setting that varies, by its key in configs/")
    if name in SHARES:
        told["constraints"] = {"minimum": 0, "maximum": 1}
    if name == "status":
        told["constraints"] = {"enum": list(STATUSES), "required": True}
    if name == "cell":
        told["constraints"] = {"unique": True, "required": True}
    return told


def _type(name: str, table: pd.DataFrame) -> str:
    if name in INTEGERS:
        return "integer"
    if name in NUMBERS:
        return "number"
    if name == "tree_dirty":
        return "boolean"
    if name == "finished_at":
        return "datetime"
    if name in MEANING:
        return "string"
    values = table[name].dropna()
    numeric = len(values) > 0 and pd.to_numeric(values, errors="coerce").notna().all()
    return "number" if numeric else "string"
