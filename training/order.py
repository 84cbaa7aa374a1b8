"""Which sequences make up a batch."""

from __future__ import annotations

import functools

import numpy as np
import torch
from torch import Tensor


class BatchOrder:
    """Batches that are plain uniform samples: every epoch is a new permutation, cut into batches.

    A pure function of (seed, step).  The last, incomplete batch of an epoch is kept, so that an
    epoch holds every sequence once and a batch the same mixture of lengths as the data.
    """

    def __init__(self, num_sequences: int, batch_size: int, seed: int) -> None:
        self.num_sequences = num_sequences
        self.batch_size = min(batch_size, num_sequences)
        self.batches_per_epoch = -(-num_sequences // self.batch_size)
        self.seed = seed
        self._permutation = functools.lru_cache(maxsize=1)(self._draw)

    def indices(self, step: int) -> Tensor:
        """Return the indices (B,) of batch ``step`` (0-based, over all epochs)."""
        epoch, number = divmod(step, self.batches_per_epoch)
        start = number * self.batch_size
        return self._permutation(epoch)[start : start + self.batch_size]

    def sequences_before(self, step: int) -> int:
        """Return how many sequences the batches before ``step`` hold."""
        epoch, number = divmod(step, self.batches_per_epoch)
        return epoch * self.num_sequences + number * self.batch_size

    def _draw(self, epoch: int) -> Tensor:
        generator = np.random.Generator(np.random.Philox(key=[self.seed, epoch]))
        return torch.from_numpy(generator.permutation(self.num_sequences))
