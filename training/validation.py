"""Loss and exact chains on the validation set, under teacher forcing."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from models.transformer import Transformer
from training.batches import SequenceTensors
from training.distributed import ALONE, Processes
from training.precision import autocast

VALIDATION_BATCH = 256  # sequences, where memory does not ask for fewer


@torch.no_grad()
def validate(
    model: Transformer,
    sequences: SequenceTensors,
    precision: str,
    batch_size: int = VALIDATION_BATCH,
    processes: Processes = ALONE,
) -> tuple[float, float]:
    """Return (mean loss per target, share of sequences without a wrong arg-max).

    A chain whose every arg-max under teacher forcing is right is the chain that free greedy
    generation writes, so the second figure is `chain_exact_match` on the validation set, up to
    the rounding of bfloat16 where ``precision`` is that; of labels, the share of sequences whose
    every label is right.  Each of ``processes`` looks at its share of the sequences; all return
    the figures of the whole.
    """
    model.eval()
    device = sequences.tokens.device
    order = torch.argsort(sequences.host_lengths)[processes.rank :: processes.size]
    targets = 0
    loss_sum, exact = torch.zeros(2, dtype=torch.float64, device=device)  # read once, at the end
    with autocast(precision, device):
        for start in range(0, len(order), batch_size):
            batch = sequences.batch(order[start : start + batch_size])
            gold = batch.at_targets(batch.targets)  # (targets,)
            hidden = model.hidden(batch.tokens[:, :-1])
            logits = model.head(batch.at_targets(hidden)).float()  # (targets, V)
            loss_sum += F.cross_entropy(logits, gold, reduction="sum")
            targets += len(gold)
            wrong = torch.zeros_like(batch.loss_mask)  # (B, T)
            wrong.view(-1)[batch.counted] = logits.argmax(-1) != gold
            exact += (~wrong.any(dim=1)).sum()
    all_loss, all_targets, all_exact = processes.sum_numbers(float(loss_sum), targets, float(exact))
    return all_loss / all_targets, all_exact / len(sequences)
