"""Exact labels: what the model says at each labelled token, by one forward pass over each sequence.

As in `generation`, a label is by definition the arg-max of the model's float64 logits.  float32
decides where its two largest logits lie further apart than its measured tolerance; float64 looks
again at the other sequences.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from evaluation.argmax import argmax_and_lead, exact_argmax
from evaluation.generation import Progress, longest_sequence
from evaluation.levels import EXACT, SINGLE, Levels, ToleranceTooSmall
from evaluation.memory import BatchSizes
from models.transformer import Transformer
from tasks.task import SequenceSet
from training.batches import SequenceTensors


@dataclass
class Tagging:
    """What a model says at the labelled tokens of N sequences.

    ``labels`` (N, W) are laid out as `SequenceSet.labels`.  ``certified`` counts the sequences
    without a mistake; ``close_calls`` and ``tolerance`` are as in `generation.Generation`.
    """

    labels: np.ndarray
    certified: int
    close_calls: int
    tolerance: float


@torch.no_grad()
def tag(
    model: Transformer,
    sequences: SequenceSet,
    memory_mb: float = 1024,
    device: torch.device | str = "cpu",
    progress: Progress = lambda done, total: None,
) -> Tagging:
    """Return what the model says at each labelled token of ``sequences``.

    Arguments, what is left of the model, and errors raised are those of `generation.generate`.
    """
    device = torch.device(device)
    longest = longest_sequence(model, sequences)
    levels, tensors = Levels(model, device), SequenceTensors(sequences, device)
    levels.calibrate(tensors)
    sizes = BatchSizes.within(memory_mb, levels.model, longest, device)
    while True:
        try:
            labels = torch.zeros_like(tensors.targets)  # (N, W)
            order = torch.argsort(tensors.lengths)
            for rows in order.split(max(1, sizes.tokens // longest)):
                _write_labels(labels, rows, tensors, levels, sizes)
                progress(int((labels != 0).any(1).sum()), len(sequences))
            break
        except ToleranceTooSmall as failure:
            levels.raise_tolerance(failure)
        except torch.OutOfMemoryError:
            if not sizes.halve():
                raise
    wrong = (labels != tensors.targets).any(1)
    return Tagging(
        labels.cpu().numpy().astype(sequences.tokens.dtype),
        int((~wrong).sum()),
        levels.close_calls,
        levels.tolerances[SINGLE],
    )


def _write_labels(
    labels: Tensor, rows: Tensor, tensors: SequenceTensors, levels: Levels, sizes: BatchSizes
) -> None:
    """Write what the model says in ``rows`` (B,) into ``labels`` (N, W)."""
    batch = tensors.batch(rows)
    inputs, counted = batch.tokens[:, :-1], batch.loss_mask  # (B, T)
    logits = levels.logits(SINGLE, inputs, counted)  # (targets, V)
    choice, lead = argmax_and_lead(logits)
    close = ~(lead >= levels.tolerances[SINGLE])  # a NaN is no lead
    row = torch.nonzero(counted)[:, 0]  # of each target
    for some in sizes.split_for_float64(row[close].unique()):
        these = torch.isin(row, some)
        exact = levels.logits(EXACT, inputs[some], counted[some])
        levels.check_error(SINGLE, logits[these], exact, int(close[these].sum()))
        choice[these] = exact_argmax(exact)
    said = labels.new_zeros(counted.shape)
    said[counted] = choice.to(labels.dtype)
    labels[rows, 1 : 1 + said.shape[1]] = said
