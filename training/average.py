"""The exponential moving average of a model's weights."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from models.transformer import Transformer


class MovingAverage:
    """``model`` is the mean of the weights so far: decay * mean + (1 - decay) * new at each update.

    As `torch.optim.swa_utils.AveragedModel`, but without a sync: that class copies a counter to
    the device at every update.
    """

    def __init__(self, model: Transformer, decay: float) -> None:
        self.model = copy.deepcopy(model)
        self.decay = decay
        self._mean: list[Tensor] = list(self.model.parameters())

    @torch.no_grad()
    def update(self, model: Transformer, first: bool) -> None:
        """Take in the weights of ``model``; forget all before if they are the ``first``."""
        weights: list[Tensor] = list(model.parameters())
        if first:
            torch._foreach_copy_(self._mean, weights)
        else:
            torch._foreach_lerp_(self._mean, weights, 1 - self.decay)
