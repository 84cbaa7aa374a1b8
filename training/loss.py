"""The loss: mean cross-entropy over chain, answer and EOS."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional as F

from models.transformer import Transformer
from training.batches import Batch


def masked_loss(
    model: Transformer, batch: Batch, hidden: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """Return the mean cross-entropy over the targets after the prompt (chain, answer, EOS).

    The head runs at those positions only: logits are (targets, V), not (B, T, V).  ``hidden``
    takes the place of ``model.hidden``.
    """
    states = (hidden or model.hidden)(batch.tokens[:, :-1])  # (B, T, D)
    logits = model.head(batch.at_targets(states))  # (targets, V)
    return F.cross_entropy(logits.float(), batch.at_targets(batch.tokens[:, 1:]))
