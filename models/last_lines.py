"""Softmax attention that erases finished lines of the chain (compare PENCIL, arXiv 2503.14337)."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from models.attention import SoftmaxAttention
from models.mixer import GenerationState
from models.packing import LONGEST, PackedAttention, Packing
from models.sparse import default_block_size, hiding_bias


class LastLines(SoftmaxAttention):
    """A token attends to its own line and to the line before; everything older is dropped, but for
    the prompt with `keep_prompt`. With `sparse`, it attends to that part of them which
    `SparseAttention` with k = c = 1 shows it.

    The task's `line_ends` end a line; the prompt is the first. `lines`: tokens of the longest
    prompt and of the longest line of the chain (default: max_len each). They bound how far back a
    token attends and how many keys the state holds. `ends` marks the tokens that end a line; None
    means that there is a single line. FLOPs are an upper bound: each query with as many keys as
    `lines` allows.
    """

    sees_lines = True

    def __init__(
        self,
        *sizes: Any,
        lines: tuple[int, int] | None = None,
        keep_prompt: bool = False,
        sparse: bool = False,
        **shared: Any,
    ):
        super().__init__(*sizes, **shared)
        prompt, line = lines or (self.max_len, self.max_len)
        self.kept = min(prompt, self.max_len) if keep_prompt else 0
        window = 2 * line if keep_prompt else max(prompt + line, 2 * line)
        self.window = max(1, min(window, self.max_len - self.kept))
        self.block_size = default_block_size(self.max_len) if sparse else None

    def sees(self, query: Tensor, key: Tensor, previous: Tensor, prompt: Tensor) -> Tensor:
        """Whether `query` attends to `key`, for positions; `previous` is where the line before
        begins, `prompt` where the prompt, if kept, has ended."""
        recent = (key >= previous) & (query - key < self.window)
        return (recent | (key < prompt)) & self.in_pattern(query, key)

    def in_pattern(self, query: Tensor, key: Tensor) -> Tensor:
        seen = key <= query
        if self.block_size is not None:
            summary = key % self.block_size == self.block_size - 1
            seen &= (query - key < self.block_size) | summary
        return seen

    def attend(self, q: Tensor, k: Tensor, v: Tensor, ends: Tensor | None = None) -> Tensor:
        at = torch.arange(q.shape[2], device=q.device)
        previous, _, prompt = self.lines_of(ends, q[:, 0, :, 0])[:, :-1, None].unbind(
            -1
        )  # (B, T, 1) each
        visible = self.sees(at[:, None], at, previous, prompt)  # (B, T, T)
        return self.softmax(q, k, v, attn_mask=visible[:, None])

    def packed_kernel(self, qkv: Tensor, packing: Packing, ends: Tensor | None = None) -> Tensor:
        of = packing.in_groups(lambda x, e: self.lines_of(e, x[:, :, 0, 0, 0])[:, :-1], qkv, ends)
        previous, _, prompt = of.unbind(-1)  # (N,) each
        first = previous.maximum(packing.positions - self.window + 1)
        hidden, bias = torch.stack((prompt.minimum(first), first), -1), None
        if self.block_size is not None:
            at = torch.arange(min(self.max_len, LONGEST))
            bias = hiding_bias(self.in_pattern(at[:, None], at))
        return PackedAttention.apply(qkv, packing, True, bias, hidden)

    def lines_of(self, ends: Tensor | None, like: Tensor) -> Tensor:
        """Where the line before each token and its own begin, and where its prompt, if kept, has
        ended, (B, T + 1, 3) for ends (B, T), the last for the next token; `like` is (B, T)."""
        ends = torch.zeros_like(like, dtype=torch.bool) if ends is None else ends
        at = torch.arange(1, ends.shape[1] + 1, device=ends.device)
        current = F.pad((ends * at).cummax(1).values, (1, 0))  # (B, T + 1)
        previous = current.gather(1, (current - 1).clamp(min=0))
        first_end = ends.int().argmax(1, keepdim=True) + 1
        prompt = torch.where(current > 0, first_end, self.kept).clamp(max=self.kept)
        return torch.stack((previous, current, prompt), -1)

    def remember(
        self, lengths: Tensor, q: Tensor, k: Tensor, v: Tensor, ends: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Also `lines_of` the next token, (B, 3)."""
        rows = torch.arange(len(lengths), device=lengths.device)
        lines = self.lines_of(ends, q[:, 0, :, 0])[rows, lengths]
        return super().remember(lengths, q, k, v) | {"lines": lines}

    def attend_step(
        self, positions: Tensor, state: GenerationState, q: Tensor, k: Tensor, v: Tensor,
        ends: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        y = super().attend_step(positions, state, q, k, v)
        if ends is not None:
            lines, after = state.tensors["lines"], positions + 1
            new = torch.stack((lines[:, 1], after, lines[:, 2].minimum(after)), 1)
            lines.copy_(torch.where(ends[:, None], new, lines))
        return y

    def visible(self, positions: Tensor, state: GenerationState) -> Tensor:
        held = self.ring_positions(positions)[:, : state.extent]
        previous, _, prompt = state.tensors["lines"].split(1, 1)  # (B, 1) each
        return (held >= 0) & self.sees(positions[:, None], held, previous, prompt)

    def slot(self, positions: Tensor) -> Tensor:
        """The first `kept` positions stay; the others share a ring."""
        ring = self.kept + (positions - self.kept) % self.window
        return torch.where(positions < self.kept, positions, ring)

    def ring_positions(self, positions: Tensor) -> Tensor:
        slots = torch.arange(self.kept + self.window, device=positions.device)
        last = positions[:, None]
        held = torch.where(slots < self.kept, slots, last - (last - slots) % self.window)
        return torch.where((held <= last) & ((held >= self.kept) | (slots < self.kept)), held, -1)

    def pairs(self, length: int) -> int:
        at, zero = torch.arange(length, device="cpu"), torch.zeros((), device="cpu")
        return int(self.sees(at[:, None], at, zero, zero + self.kept).sum())

    def slots(self, length: int) -> int:
        return min(length, self.kept + self.window)
