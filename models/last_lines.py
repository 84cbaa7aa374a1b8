"""Softmax attention that erases finished lines of the chain (compare PENCIL, arXiv 2503.14337)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from models.attention import AttentionMixer, fused_attention
from models.mixer import GenerationState, check_sizes
from models.packing import PackedAttention, Packing, attention_takes


class LastLines(AttentionMixer):
    """A token attends to its own line and to the line before; everything older is dropped.

    A line ends with the task's answer marker. `span` is the length in tokens of the longest two
    successive lines: no token attends further back, and the state holds that many keys and values.
    `ends` marks the tokens that end a line; None means that there is a single line.
    """

    drops_weights = True
    sees_lines = True

    def __init__(self, *sizes: Any, span: int | None = None, **shared: Any):
        super().__init__(*sizes, **shared)
        self.span = self.max_len if span is None else span
        check_sizes(span=self.span)

    def forward(self, x: Tensor, ends: Tensor | None = None) -> Tensor:
        q, k, v = self.project(x)  # (B, H, T, K)
        return self.merge(self.attend(q, k, v, ends))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, ends: Tensor | None = None) -> Tensor:
        batch, _, length, _ = q.shape
        ends = q.new_zeros(batch, length, dtype=torch.bool) if ends is None else ends
        at = torch.arange(length, device=q.device)
        visible = (at <= at[:, None]) & (at >= self.first_seen(ends)[..., None])  # (B, T, T)
        return fused_attention(
            self.turned(q), self.turned(k), v,
            attn_mask=visible[:, None],
            dropout_p=self.dropout if self.training else 0.0,
        )  # fmt: skip

    def forward_packed(self, x: Tensor, packing: Packing, ends: Tensor | None = None) -> Tensor:
        qkv = self.convolution.forward_packed(self.qkv(x), packing)  # (N, 3D)
        ends = x.new_zeros(len(x), dtype=torch.bool) if ends is None else ends
        parts = qkv.unflatten(-1, (3, self.num_heads, -1))  # (N, 3, H, K)
        drops = self.training and self.dropout > 0
        if self.position != "rope" and not drops and attention_takes(parts, packing):
            first = packing.in_groups(self.first_seen, ends)
            y = PackedAttention.apply(parts.float(), packing, True, None, first).to(x.dtype)
        else:
            y = packing.in_groups(self.attend_group, qkv, ends)
        return self.out(y.flatten(1))  # (N, H, K) to (N, D)

    def attend_group(self, qkv: Tensor, ends: Tensor) -> Tensor:
        """`attend` for qkv (B, T, 3D) and ends (B, T), to (B, T, H, K)."""
        q, k, v = (part.transpose(1, 2) for part in self.heads(qkv))
        return self.attend(q, k, v, ends).transpose(1, 2)

    def first_seen(self, ends: Tensor) -> Tensor:
        """The first position that each token attends to, (B, T) for ends (B, T)."""
        at = torch.arange(ends.shape[1], device=ends.device)
        return torch.maximum(at - self.span + 1, line_starts(ends)[0][:, :-1])

    def prefill(
        self, x: Tensor, lengths: Tensor, ends: Tensor | None = None
    ) -> tuple[Tensor, GenerationState]:
        q, k, v = self.project(x)  # (B, H, T, K)
        ends = x.new_zeros(x.shape[:2], dtype=torch.bool) if ends is None else ends
        source = self.slot_positions(lengths - 1)  # (B, slots)
        filled = (source >= 0)[:, None, :, None]  # (B, 1, slots, 1)
        where = source.clamp(min=0)[:, None, :, None].expand(-1, k.shape[1], -1, k.shape[3])
        starts = torch.stack(line_starts(ends))  # (2, B, T + 1)
        at = lengths.expand(2, -1)[..., None]
        tensors = {
            "keys": self.turned(k).gather(2, where) * filled,  # (B, H, slots, K)
            "values": v.gather(2, where) * filled,
            "starts": starts.gather(2, at).squeeze(2).T.contiguous(),  # (B, 2)
            **self.convolution.recent(x, lengths, self.qkv),
        }
        y = self.merge(self.attend(q, k, v, ends))
        return y, GenerationState(tensors, lengths, x.shape[1])

    def step(
        self, x: Tensor, positions: Tensor, state: GenerationState, ends: Tensor | None = None
    ) -> Tensor:
        q, k, v = self.project_step(x, state.tensors)  # (B, H, K)
        state.advance(positions)
        keys, values, starts = (state.tensors[name] for name in ("keys", "values", "starts"))
        rows = torch.arange(len(x), device=x.device)
        q, k = (self.turned(part, positions[:, None]) for part in (q, k))
        keys[rows, :, positions % keys.shape[2]] = k
        values[rows, :, positions % keys.shape[2]] = v
        held = self.slot_positions(positions)  # (B, slots)
        visible = (held >= starts[:, :1])[:, None, None]  # (B, 1, 1, slots)
        y = F.scaled_dot_product_attention(q[:, :, None], keys, values, visible).squeeze(2)
        if ends is not None:
            new = torch.stack((starts[:, 1], positions + 1), 1)
            starts.copy_(torch.where(ends[:, None], new, starts))
        return self.out(y.flatten(1))

    def slot_positions(self, positions: Tensor) -> Tensor:
        """The position in each slot of the ring after writing position p, (B,) to (B, slots);
        negative if empty."""
        slots = torch.arange(min(self.span, self.max_len), device=positions.device)
        return positions[:, None] - (positions[:, None] - slots) % len(slots)

    def mixing_flops(self, length: int) -> dict[str, int]:
        """Each query with as many keys as `span` allows: an upper bound."""
        inside = min(length, self.span)
        pairs = inside * (inside + 1) // 2 + (length - inside) * self.span
        return {"mixing/scores": 2 * pairs * self.dim, "mixing/values": 2 * pairs * self.dim}

    def state_bytes(self, length: int) -> int:
        """A key and a value of D float32 numbers for each of up to `span` tokens."""
        return 2 * 4 * self.dim * min(length, self.span) + self.convolution.state_bytes()


def line_starts(ends: Tensor) -> tuple[Tensor, Tensor]:
    """For ends (B, T), where the previous and the current line of each token start, (B, T + 1)
    each; the last column is that of the next token."""
    at = torch.arange(1, ends.shape[1] + 1, device=ends.device)
    current = F.pad((ends * at).cummax(1).values, (1, 0))  # (B, T + 1)
    return current.gather(1, (current - 1).clamp(min=0)), current
