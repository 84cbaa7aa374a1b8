"""The loss: mean cross-entropy over chain, answer and EOS, or over labels."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional as F

from models.precision import widened
from models.transformer import Transformer
from training.batches import Batch, PackedBatch


def masked_loss(
    model: Transformer, batch: Batch, hidden: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """Return the mean cross-entropy over the targets after the prompt (chain, answer, EOS), or
    over all labels.

    The head runs at those positions only: logits are (targets, V), not (B, T, V).  ``hidden``
    takes the place of ``model.hidden``.
    """
    states = (hidden or model.hidden)(batch.tokens[:, :-1])  # (B, T, D)
    logits = model.head(batch.at_targets(states))  # (targets, V)
    return F.cross_entropy(widened(logits), batch.at_targets(batch.targets))


def packed_loss(model: Transformer, batch: PackedBatch) -> Tensor:
    """Return what `masked_loss` does, of sequences without padding."""
    states = model.hidden(batch.tokens, batch.packing)  # (N, D)
    logits = model.head(states.index_select(0, batch.counted))  # (targets, V)
    return F.cross_entropy(widened(logits), batch.targets)
