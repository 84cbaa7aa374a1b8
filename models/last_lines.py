"""Softmax attention that erases finished lines of the chain (compare PENCIL, arXiv 2503.14337)."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from models.attention import SoftmaxAttention
from models.mixer import GenerationState, check_sizes
from models.packing import PackedAttention, Packing


class LastLines(SoftmaxAttention):
    """A token attends to its own line and to the line before; everything older is dropped.

    A line ends with the task's answer marker. `span` is the length in tokens of the longest two
    successive lines: no token attends further back, and the state holds that many keys and values.
    `ends` marks the tokens that end a line; None means that there is a single line. FLOPs are an
    upper bound: each query with as many keys as `span` allows.
    """

    sees_lines = True

    def __init__(self, *sizes: Any, span: int | None = None, **shared: Any):
        super().__init__(*sizes, **shared)
        self.window = self.max_len if span is None else span
        check_sizes(span=self.window)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, ends: Tensor | None = None) -> Tensor:
        first = self.first_seen(no_ends(q[:, 0, :, 0]) if ends is None else ends)  # (B, T)
        at = torch.arange(q.shape[2], device=q.device)
        visible = (at <= at[:, None]) & (at >= first[..., None])  # (B, T, T)
        return self.softmax(q, k, v, attn_mask=visible[:, None])

    def packed_kernel(self, qkv: Tensor, packing: Packing, ends: Tensor | None = None) -> Tensor:
        ends = no_ends(qkv[:, 0, 0, 0]) if ends is None else ends
        first = packing.in_groups(self.first_seen, ends)
        return PackedAttention.apply(qkv, packing, True, None, first)

    def first_seen(self, ends: Tensor) -> Tensor:
        """The first position that each token attends to, (B, T) for ends (B, T)."""
        at = torch.arange(ends.shape[1], device=ends.device)
        return torch.maximum(at - self.window + 1, line_starts(ends)[0][:, :-1])

    def remember(
        self, lengths: Tensor, q: Tensor, k: Tensor, v: Tensor, ends: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Also where the previous and the current line start, (B, 2)."""
        starts = torch.stack(line_starts(no_ends(q[:, 0, :, 0]) if ends is None else ends))
        starts = starts.gather(2, lengths.expand(2, -1)[..., None])  # of (2, B, T + 1)
        return super().remember(lengths, q, k, v) | {"starts": starts.squeeze(2).T.contiguous()}

    def attend_step(
        self, positions: Tensor, state: GenerationState, q: Tensor, k: Tensor, v: Tensor,
        ends: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        y = super().attend_step(positions, state, q, k, v)
        if ends is not None:
            starts = state.tensors["starts"]
            new = torch.stack((starts[:, 1], positions + 1), 1)
            starts.copy_(torch.where(ends[:, None], new, starts))
        return y

    def visible(self, positions: Tensor, state: GenerationState) -> Tensor:
        held = self.ring_positions(positions)[:, : state.extent]
        return held >= state.tensors["starts"][:, :1]


def no_ends(like: Tensor) -> Tensor:
    return torch.zeros_like(like, dtype=torch.bool)


def line_starts(ends: Tensor) -> tuple[Tensor, Tensor]:
    """For ends (B, T), where the previous and the current line of each token start, (B, T + 1)
    each; the last column is that of the next token."""
    at = torch.arange(1, ends.shape[1] + 1, device=ends.device)
    current = F.pad((ends * at).cummax(1).values, (1, 0))  # (B, T + 1)
    return current.gather(1, (current - 1).clamp(min=0)), current
