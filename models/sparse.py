"""Sparse attention: a window of recent tokens and the last tokens of every block (Yang et al. 2024,
eq. 6, after Child et al. 2019)."""

import functools
import math
from typing import Any, Literal

import torch
from pydantic import NonNegativeInt, PositiveInt
from torch import Tensor
from torch.nn import functional as F

from common import UserError
from models.attention import SoftmaxAttention
from models.cpu_attention import KEY_LANES
from models.mixer import GenerationState
from models.packing import MAX_KERNEL_LENGTH, rounded_up

# Measured on a CPU at commit 22bf7fbc715f, 4 heads of 16, batch 16, forward and backward: dense
# takes 10.2 ms against 10.9 at 144 tokens, 12.1 against 11.9 at 160, 22 against 17 at 221.
BLOCKED_FROM = 160


def default_block_size(max_len: int) -> int:
    """B = 2^⌊log₂ √L⌋ with L the longest sequence (Yang et al. 2024, section 6)."""
    return 2 ** ((max_len.bit_length() - 1) // 2)


def mask_bias(pattern: Tensor) -> Tensor:
    """The kernel's bias on scores, -inf where `pattern` (T, T) is False."""
    bias = torch.zeros(2 * (rounded_up(len(pattern), KEY_LANES),))
    bias[: len(pattern), : len(pattern)].masked_fill_(~pattern, -torch.inf)
    return bias


class SparseAttention(SoftmaxAttention):
    """Token i attends to I_i = {j : i - kB < j <= i} ∪ {j <= i : (j - 1) mod B >= B - c}, counted
    from 1 (Yang et al. 2024, eq. 6), the same in all heads; methods count from 0.

    block_size B (None: 2^⌊log₂ √max_len⌋), window_blocks k, summary_tokens c. "dense" masks the T x
    T matrix; "blocked" computes O(T (kB + cT/B)) of its entries; "auto" chooses by max_len
    (BLOCKED_FROM). After the ring of the window, the state holds the summary tokens in order.
    Raises UserError if c > B.
    """

    has_kernel = True

    pattern: Tensor
    summaries: Tensor

    def __init__(
        self,
        *sizes: Any,
        block_size: PositiveInt | None = None,
        window_blocks: PositiveInt = 1,
        summary_tokens: NonNegativeInt = 1,
        implementation: Literal["auto", "dense", "blocked"] = "auto",
        **shared: Any,
    ):
        super().__init__(*sizes, **shared)
        max_len = self.max_len
        self.block_size = default_block_size(max_len) if block_size is None else block_size
        self.window_blocks, self.summary_tokens = window_blocks, summary_tokens
        if summary_tokens > self.block_size:
            raise UserError(
                f"summary_tokens={summary_tokens}: must be at most block_size={self.block_size}"
            )
        if implementation == "auto":
            implementation = "blocked" if max_len >= BLOCKED_FROM else "dense"
        self.implementation = implementation
        self.window = window_blocks * self.block_size  # kB, the number of recent tokens seen
        every = torch.arange(max_len)
        self.register_buffer("summaries", every[self.is_summary(every)], persistent=False)
        pattern = self.dense_pattern if implementation == "dense" else self.blocked_pattern
        self.register_buffer("pattern", pattern(max_len), persistent=False)

    def is_summary(self, positions: Tensor) -> Tensor:
        return positions % self.block_size >= self.block_size - self.summary_tokens

    def dense_pattern(self, length: int) -> Tensor:
        """(T, T) bool: row i is what position i sees."""
        key = torch.arange(length)
        query = key[:, None]
        return (key <= query) & ((query - key < self.window) | self.is_summary(key))

    def blocked_pattern(self, length: int) -> Tensor:
        """(N, B, (k + 1) B + (N - k) c) bool: what each query of each block sees, columns as in
        `gather_blocks` (near, then far). A summary token inside the window counts as near only."""
        size, blocks = self.block_size, math.ceil(length / self.block_size)
        first = torch.arange(blocks)[:, None, None] * size  # (N, 1, 1)
        query = first + torch.arange(size)[:, None]  # (N, B, 1)
        nearby = first - self.window + torch.arange(self.window + size)  # (N, 1, (k + 1) B)
        local = (nearby >= 0) & (nearby <= query) & (query - nearby < self.window)
        distant = torch.arange(max(0, blocks - self.window_blocks) * size)
        distant = distant[self.is_summary(distant)]
        return torch.cat((local, distant <= query - self.window), dim=-1)

    def count_summaries(self, length: int) -> int:
        full, rest = divmod(length, self.block_size)
        return full * self.summary_tokens + max(0, rest - self.block_size + self.summary_tokens)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if self.implementation == "blocked":
            return self.attend_blocked(self.apply_rotary(q), self.apply_rotary(k), v)
        return self.softmax(q, k, v, attn_mask=self.pattern[: q.shape[2], : q.shape[2]])

    @functools.cached_property
    def bias(self) -> Tensor:
        """The kernel's bias on scores, for the longest sequences it takes."""
        return mask_bias(self.dense_pattern(min(self.max_len, MAX_KERNEL_LENGTH)))

    def attend_blocked(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """`attend` by blocks of B queries, in plain matrix products; batch and heads share an axis,
        and the sequence is padded to N whole blocks."""
        batch, heads, length, width = q.shape
        short = -length % self.block_size
        q = F.pad(q, (0, 0, 0, short)).flatten(0, 1) / width**0.5  # (BH, NB, K)
        near_k, far_k = self.gather_blocks(k, short)  # (BH, N, (k+1)B, K), (BH, (N-k)c, K)
        near_v, far_v = self.gather_blocks(v, short)
        by_block = (near_k.shape[1], self.block_size)  # (N, B)
        near = q.unflatten(1, by_block) @ near_k.mT  # (BH, N, B, (k+1)B)
        far = (q @ far_k.mT).unflatten(1, by_block)  # (BH, N, B, (N-k)c)
        scores = torch.cat((near, far), dim=-1)
        pattern = self.pattern[: near.shape[1], :, : scores.shape[-1]]  # (N, B, keys)
        weights = scores.masked_fill_(~pattern, -torch.inf).softmax(-1)
        weights = F.dropout(weights, self.dropout, self.training)
        near, far = weights.split((near.shape[-1], far.shape[-1]), dim=-1)
        y = near @ near_v + (far.flatten(1, 2) @ far_v).unflatten(1, by_block)  # (BH, N, B, K)
        return y.flatten(1, 2)[:, :length].unflatten(0, (batch, heads))

    def gather_blocks(self, x: Tensor, short: int) -> tuple[Tensor, Tensor]:
        """Split keys or values x (B, H, T, K), padded by `short` zeros to whole blocks, into those
        near each block (it and the k before it), (BH, N, (k + 1) B, K), and the summary tokens
        far from some block, (BH, (N - k) c, K)."""
        size = self.block_size
        x = F.pad(x, (0, 0, self.window, short)).flatten(0, 1)  # (BH, kB + NB, K)
        near = x.unfold(1, self.window + size, size).mT  # (BH, N, (k+1)B, K)
        blocks = x[:, self.window :].unflatten(1, (-1, size))  # (BH, N, B, K)
        last = max(0, blocks.shape[1] - self.window_blocks)
        return near, blocks[:, :last, size - self.summary_tokens :].flatten(1, 2)

    def in_slots(self, x: Tensor, source: Tensor) -> Tensor:
        held = x[:, :, self.summaries[: self.count_summaries(x.shape[2])]]  # (B, H, count, K)
        missing = len(self.summaries) - held.shape[2]
        return torch.cat((super().in_slots(x, source), F.pad(held, (0, 0, 0, missing))), 2)

    def write(self, held: Tensor, new: Tensor, positions: Tensor) -> None:
        super().write(held, new, positions)
        if len(self.summaries):
            # Rows that are not at a summary token write back what the slot holds already.
            count, rows = len(self.summaries), torch.arange(len(new), device=new.device)
            slot = torch.searchsorted(self.summaries, positions).clamp(max=count - 1) - count
            keep = self.is_summary(positions)[:, None, None]
            held[rows, :, slot] = torch.where(keep, new, held[rows, :, slot])

    def visible(self, positions: Tensor, state: GenerationState) -> Tensor:
        count = min(self.count_summaries(state.extent), len(self.summaries))
        outside = self.summaries[:count] <= positions[:, None] - self.window
        return torch.cat((self.ring_positions(positions) >= 0, outside), dim=1)

    def pairs(self, length: int) -> int:
        outside = sum(self.count_summaries(i) for i in range(1, length - self.window + 1))
        return super().pairs(length) + outside

    def slots(self, length: int) -> int:
        return super().slots(length) + self.count_summaries(length)
