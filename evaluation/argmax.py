"""Which token a row of logits stands for."""

from __future__ import annotations

import torch
from torch import Tensor

TIE = 1e-9


def exact_argmax(logits: Tensor) -> Tensor:
    """Return the generated token of each row of float64 ``logits`` (..., V): the arg-max, where
    logits closer than `TIE` to the largest (absolute) are tied with it and the lowest id wins.

    This defines the generated token.  Without a margin for ties, two equal rows of the head would
    leave the token to the rounding of a sum, which changes with the batch it is computed in:
    about 1e-13 for logits in the hundreds.  A lead within such a rounding of `TIE` itself is still
    open to it, but no structure of a model makes one.
    """
    ids = torch.arange(logits.shape[-1], device=logits.device)
    tied = logits.amax(-1, keepdim=True) - logits < TIE
    return torch.where(tied, ids, logits.shape[-1]).amin(-1)


def argmax_and_lead(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return the arg-max and its lead over the runner-up, both of shape ``logits.shape[:-1]``."""
    top = logits.topk(2, dim=-1)
    return top.indices[..., 0], top.values[..., 0] - top.values[..., 1]
