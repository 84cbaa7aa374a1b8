"""Sparse attention: a window of recent tokens and the last tokens of every block (Yang et al. 2024,
eq. 6, after Child et al. 2019)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from common import UserError
from models.attention import AttentionMixer, fused_attention
from models.mixer import GenerationState, check_choice, check_sizes
from models.packing import LONGEST, PackedAttention, Packing, bias_shape

IMPLEMENTATIONS = ("auto", "dense", "blocked")
# Measured by `python -m benchmarks scaling forms=true` (CPU, 4 heads of 16, batch 16, forward and
# backward): dense takes 10.2 ms against 10.9 at 144 tokens, 12.1 against 11.9 at 160, 22 against
# 17 at 221, 88 against 51 at 505. Not run on a GPU.
BLOCKED_FROM = 160


def default_block_size(max_len: int) -> int:
    """B = 2^⌊log₂ √L⌋ with L the longest sequence (Yang et al. 2024, section 6)."""
    return 2 ** ((max_len.bit_length() - 1) // 2)


@dataclass(frozen=True)
class SparsePattern:
    """Which positions token i attends to: I_i = {j : i - kB < j <= i} ∪ {j <= i : (j - 1) mod B >=
    B - c}, counted from 1 (Yang et al. 2024, eq. 6), with B block_size, k window_blocks, c
    summary_tokens. Methods count from 0."""

    block_size: int
    window_blocks: int
    summary_tokens: int

    @property
    def window(self) -> int:
        """kB, the number of recent tokens seen."""
        return self.window_blocks * self.block_size

    def is_summary(self, positions: Tensor) -> Tensor:
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
        """(N, B, (k + 1) B + (N - k) c) bool: what each query of each block sees, columns as in
        `SparseAttention.gather_blocks` (near, then far). A summary token inside the window counts
        as near only."""
        size, blocks = self.block_size, math.ceil(length / self.block_size)
        first = torch.arange(blocks)[:, None, None] * size  # (N, 1, 1)
        query = first + torch.arange(size)[:, None]  # (N, B, 1)
        nearby = first - self.window + torch.arange(self.window + size)  # (N, 1, (k + 1) B)
        local = (nearby >= 0) & (nearby <= query) & (query - nearby < self.window)
        distant = torch.arange(blocks * size)
        distant = distant[self.is_summary(distant)][: self.distant(blocks)]
        return torch.cat((local, distant <= query - self.window), dim=-1)

    def distant(self, blocks: int) -> int:
        """The number of summary tokens outside the window in a sequence of N blocks."""
        return max(0, blocks - self.window_blocks) * self.summary_tokens

    def count_summaries(self, length: int) -> int:
        full, rest = divmod(length, self.block_size)
        return full * self.summary_tokens + max(0, rest - self.block_size + self.summary_tokens)

    def pairs(self, length: int) -> int:
        """Σ_{i<=length} |I_i|, the number of query-key pairs."""
        outside = sum(self.count_summaries(i + 1 - self.window) for i in range(self.window, length))
        inside = min(length, self.window)
        return inside * (inside + 1) // 2 + (length - inside) * self.window + outside


class SparseAttention(AttentionMixer):
    """Softmax attention over `SparsePattern`, the same in all heads.

    block_size B (None: 2^⌊log₂ √max_len⌋), window_blocks k, summary_tokens c. "dense" masks the T x
    T matrix; "blocked" computes O(T (kB + cT/B)) of its entries; "auto" chooses by max_len
    (BLOCKED_FROM). Raises UserError unless B, k >= 1 and 0 <= c <= B.
    """

    pattern: Tensor
    summaries: Tensor

    drops_weights = True

    def __init__(
        self,
        *sizes: Any,
        block_size: int | None = None,
        window_blocks: int = 1,
        summary_tokens: int = 1,
        implementation: str = "auto",
        **shared: Any,
    ):
        super().__init__(*sizes, **shared)
        max_len = self.max_len
        self.block_size = default_block_size(max_len) if block_size is None else block_size
        self.window_blocks, self.summary_tokens = window_blocks, summary_tokens
        check_sizes(block_size=self.block_size, window_blocks=window_blocks)
        if not 0 <= summary_tokens <= self.block_size:
            raise UserError(
                f"summary_tokens={summary_tokens}: expected 0 to block_size={self.block_size}"
            )
        check_choice("implementation", implementation, IMPLEMENTATIONS)
        if implementation == "auto":
            implementation = "blocked" if max_len >= BLOCKED_FROM else "dense"
        self.implementation = implementation
        self.sees = sees = SparsePattern(self.block_size, window_blocks, summary_tokens)
        self.window = sees.window  # kB
        every = torch.arange(max_len, device="cpu")  # indexed below, so never on the meta device
        self.register_buffer("summaries", every[sees.is_summary(every)], persistent=False)
        pattern = sees.dense(max_len) if implementation == "dense" else sees.blocked(max_len)
        self.register_buffer("pattern", pattern, persistent=False)
        self._bias: Tensor | None = None

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k = self.turned(q), self.turned(k)
        if self.implementation == "blocked":
            return self.attend_blocked(q, k, v)
        mask = self.pattern[: q.shape[2], : q.shape[2]]  # (T, T)
        dropout = self.dropout if self.training else 0.0
        return fused_attention(q, k, v, attn_mask=mask, dropout_p=dropout)

    def packed_kernel(self, qkv: Tensor, packing: Packing) -> Tensor:
        return PackedAttention.apply(qkv, packing, True, self.bias())

    def bias(self) -> Tensor:
        """The kernel's bias on scores, 0 or -inf where hidden, for the longest sequences it
        takes."""
        if self._bias is None:
            longest = min(self.max_len, LONGEST)
            bias = torch.zeros(bias_shape(longest), device="cpu")
            hidden = ~self.sees.dense(longest).cpu()
            bias[:longest, :longest].masked_fill_(hidden, -torch.inf)
            self._bias = bias
        return self._bias

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
        """Keys or values x (B, H, T, K), with `short` zeros to complete the last block, as those
        near each block (the block and the k before it), (BH, N, (k + 1) B, K), and the summary
        tokens far from some block, (BH, (N - k) c, K)."""
        size = self.block_size
        x = F.pad(x, (0, 0, self.window, short)).flatten(0, 1)  # (BH, kB + NB, K)
        near = x.unfold(1, self.window + size, size).mT  # (BH, N, (k+1)B, K)
        blocks = x[:, self.window :].unflatten(1, (-1, size))  # (BH, N, B, K)
        far = blocks[
            :, : max(0, blocks.shape[1] - self.window_blocks), size - self.summary_tokens :
        ]
        return near, far.flatten(1, 2)

    def remember(self, lengths: Tensor, q: Tensor, k: Tensor, v: Tensor) -> dict[str, Tensor]:
        """Keys and values (B, H, slots, K): first a ring of min(kB, L) slots, position t in slot t
        mod their number, then the summary tokens in order."""
        source = self.ring_positions(lengths - 1)  # (B, ring)
        return {"keys": self.in_slots(self.turned(k), source), "values": self.in_slots(v, source)}

    def in_slots(self, x: Tensor, source: Tensor) -> Tensor:
        """Fill slots (B, H, slots, K) from x (B, H, T, K): positions `source` (B, ring), then
        summaries."""
        batch, heads, width, head_dim = x.shape
        ring = source.shape[1]
        held = x.new_zeros(batch, heads, ring + len(self.summaries), head_dim)
        source = source[:, None, :, None].expand(-1, heads, -1, head_dim)  # (B, H, ring, K)
        held[:, :, :ring] = x.gather(2, source.clamp(min=0)) * (source >= 0)
        count = self.sees.count_summaries(width)
        held[:, :, ring : ring + count] = x[:, :, self.summaries[:count]]
        return held

    def ring_positions(self, positions: Tensor) -> Tensor:
        """The position in each ring slot after writing position p: (B,) to (B, ring), negative if
        empty."""
        ring = min(self.window, self.max_len)
        slots = torch.arange(ring, device=positions.device)
        return positions[:, None] - (positions[:, None] - slots) % ring

    def attend_step(
        self, positions: Tensor, state: GenerationState, q: Tensor, k: Tensor, v: Tensor
    ) -> Tensor:
        self.write(state.tensors["keys"], self.turned(k, positions[:, None]), positions)
        self.write(state.tensors["values"], v, positions)
        ring_positions = self.ring_positions(positions)
        ring, count = ring_positions.shape[1], self.sees.count_summaries(state.extent)
        count = min(count, len(self.summaries))
        outside = self.summaries[:count] <= positions[:, None] - self.window
        mask = torch.cat((ring_positions >= 0, outside), dim=1)[:, None, None]  # (B, 1, 1, keys)
        keys = state.tensors["keys"][:, :, : ring + count]  # (B, H, keys, K)
        values = state.tensors["values"][:, :, : ring + count]
        q = self.turned(q, positions[:, None])[:, :, None]  # (B, H, 1, K)
        return F.scaled_dot_product_attention(q, keys, values, mask).squeeze(2)

    def write(self, held: Tensor, new: Tensor, positions: Tensor) -> None:
        """Write new (B, H, K), at positions[b], into held (B, H, slots, K)."""
        rows = torch.arange(len(new), device=new.device)
        ring = min(self.window, self.max_len)
        held[rows, :, positions % ring] = new
        if len(self.summaries):
            # Rows that are not at a summary token write back what the slot holds already.
            before = positions // self.block_size * self.summary_tokens
            offset = positions % self.block_size - (self.block_size - self.summary_tokens)
            slot = ring + (before + offset.clamp(min=0)).clamp(max=len(self.summaries) - 1)
            keep = self.sees.is_summary(positions)[:, None, None]
            held[rows, :, slot] = torch.where(keep, new, held[rows, :, slot])

    def mixing_flops(self, length: int) -> dict[str, int]:
        pairs = self.sees.pairs(length)
        return {"mixing/scores": 2 * pairs * self.dim, "mixing/values": 2 * pairs * self.dim}

    def state_bytes(self, length: int) -> int:
        slots = min(length, self.window) + self.sees.count_summaries(length)
        return 2 * 4 * self.dim * slots + self.convolution.state_bytes()
