"""Columns of a results row: training, accuracy and cost."""

from errno import EDQUOT, ENOSPC
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from submitit.core.utils import UncompletedJobError

from common import RunError
from evaluation.judge import Evaluation
from models.flops import linear_layer_flops, training_step_flops
from models.transformer import Transformer
from tasks.task import Task
from training.trainer import Interrupted, Trainer, still_improving


def training_cost(trainer: Trainer) -> dict[str, Any]:
    state = trainer.state
    reached = next((r for r in state.curve if r.validation_chain_exact_match >= 0.9), None)
    sequences = trainer.order.sequences_before(state.step)
    return {
        "steps": state.step,
        "stopped": state.stopped,
        "still_improving": still_improving(state.curve),
        "train_seconds": round(state.seconds, 3),
        "steps_to_90": reached.step if reached else None,
        "seconds_to_90": round(reached.seconds, 3) if reached else None,
        "precision": trainer.recipe.precision,
        "device": "; ".join(state.devices),
        "flops_training": round(sequences * flops_per_sequence(trainer)),
    }


def flops_per_sequence(trainer: Trainer) -> float:
    """Training FLOPs, mean over sequences, without padding."""
    lengths, counts = np.unique(trainer.train.host_lengths.numpy() - 1, return_counts=True)
    passes = [training_step_flops(trainer.model.flops(int(length))) for length in lengths]
    return float(np.average(passes, weights=counts))


def accuracies(evaluation: Evaluation) -> dict[str, Any]:
    others = "seconds", "errors", "generation"
    row = {k: value for k, value in vars(evaluation).items() if k not in others}
    return row | {"eval_seconds": round(evaluation.seconds, 3)}


def model_costs(model: Transformer, measured: Task) -> dict[str, Any]:
    """Parameters; FLOPs of a forward pass over the longest sequence, in both conventions; and bytes
    of generation state at that length."""
    terms = model.flops(measured.max_len)
    return {
        "params": sum(parameter.numel() for parameter in model.parameters()),
        "flops_linear_layers": linear_layer_flops(terms),
        "flops_total": sum(terms.values()),
        "state_bytes": model.state_bytes(measured.max_len),
    }


def reason(error: BaseException) -> str:
    """Why a cell is not done, in one line."""
    if isinstance(error, Interrupted):
        return str(error) or "stopped; continues from its checkpoint"
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return "out of memory; micro_batch_size=N trains the same batch N sequences at a time"
    text = " ".join(str(error).split())[:300]
    return text if isinstance(error, RunError) else f"{type(error).__name__}: {text}"


def status_of(error: BaseException) -> str:
    """ "unfinished" after an interruption, a SLURM time-out or a full disk, else "failed"."""
    causes = [error, error.__cause__]
    full = any(isinstance(e, OSError) and e.errno in (ENOSPC, EDQUOT) for e in causes)
    stopped = isinstance(error, Interrupted | UncompletedJobError)
    return "unfinished" if full or stopped else "failed"


def read_curve(path: Path) -> dict[Any, list[float]] | None:
    """The learning curve by column; None without one."""
    if not path.exists():
        return None
    curve = pd.read_csv(path)
    return curve.to_dict("list") if len(curve) else None
