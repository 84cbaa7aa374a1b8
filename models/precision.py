"""Products and sums that stay in float32 whatever the autocast type, and in float64 where asked."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def widened(x: Tensor) -> Tensor:
    """``x`` in float32; float64 stays, since close calls are decided by what it computes."""
    return x if x.dtype == torch.float64 else x.float()


def without_autocast(x: Tensor) -> AbstractContextManager:
    """Keep products in float32 even under autocast, which the meta device does not know."""
    return nullcontext() if x.is_meta else torch.autocast(x.device.type, enabled=False)
