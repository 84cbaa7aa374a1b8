"""Which tokens sparse attention sees (Yang et al. 2024, equation 6)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class SparsePattern:
    """Token i sees I_i, positions counted from 1 (Yang et al. 2024, eq. 6).

    I_i = {j : i - kB < j <= i} ∪ {j <= i : (j - 1) mod B >= B - c} with B block_size, k
    window_blocks and c summary_tokens.  The methods count positions from 0.
    """

    block_size: int
    window_blocks: int
    summary_tokens: int

    @property
    def window(self) -> int:
        """kB, how many recent tokens are seen."""
        return self.window_blocks * self.block_size

    def is_summary(self, positions: Tensor) -> Tensor:
        """Whether positions are among the last c of their block."""
        return positions % self.block_size >= self.block_size - self.summary_tokens

    def visible(self, query: Tensor, key: Tensor) -> Tensor:
        """Whether position `query` attends to `key`; broadcasts."""
        recent = query - key < self.window
        return (key >= 0) & (key <= query) & (recent | self.is_summary(key))

    def dense(self, length: int) -> Tensor:
        """(T, T) bool: row i is what position i sees."""
        every = torch.arange(length)
        return self.visible(every[:, None], every)

    def blocked(self, length: int) -> Tensor:
        """(N, B, (k + 1) B + (N - k) c) bool: what each query of each block sees.

        Columns are those of `SparseAttention.gather_blocks` for a sequence of `length` tokens:
        near, then far; a shorter sequence needs the first of them. A summary token inside the
        window is seen among the near ones alone.
        """
        size, blocks = self.block_size, math.ceil(length / self.block_size)
        first = torch.arange(blocks)[:, None, None] * size  # (N, 1, 1)
        query = first + torch.arange(size)[:, None]  # (N, B, 1)
        nearby = first - self.window + torch.arange(self.window + size)  # (N, 1, (k + 1) B)
        local = (nearby >= 0) & (nearby <= query) & (query - nearby < self.window)
        distant = torch.arange(blocks * size)
        distant = distant[self.is_summary(distant)][: self.distant(blocks)]
        return torch.cat((local, distant <= query - self.window), dim=-1)

    def distant(self, blocks: int) -> int:
        """How many summary tokens can lie outside the window, in a sequence of N blocks."""
        return max(0, blocks - self.window_blocks) * self.summary_tokens

    def count_summaries(self, length: int) -> int:
        """How many of the first `length` positions are summary tokens."""
        full, rest = divmod(length, self.block_size)
        return full * self.summary_tokens + max(0, rest - self.block_size + self.summary_tokens)

    def pairs(self, length: int) -> int:
        """Σ_{i<=length} |I_i|: how many pairs of query and key there are."""
        outside = sum(self.count_summaries(i + 1 - self.window) for i in range(self.window, length))
        inside = min(length, self.window)
        return inside * (inside + 1) // 2 + (length - inside) * self.window + outside
