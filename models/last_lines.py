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

    def sees(self, query: Tensor, key: Tensor, first: Tensor, prompt: Tensor) -> Tensor:
        """Whether `query` attends to `key`, for positions; `first` is where the line before begins,
        `prompt` where the prompt, if kept, has ended."""
        return ((key >= first) | (key < prompt)) & self.in_pattern(query, key)

    def in_pattern(self, query: Tensor, key: Tensor) -> Tensor:
        seen = key <= query
        if self.block_size is not None:
            summary = key % self.block_size == self.block_size - 1
            seen &= (query - key < self.block_size) | summary
        return seen

    def attend(self, q: Tensor, k: Tensor, v: Tensor, ends: Tensor | None = None) -> Tensor:
        at = torch.arange(q.shape[2], device=q.device)
        ends = no_ends(q[:, 0, :, 0]) if ends is None else ends
        first, prompt = self.bounds(ends).unbind(-1)  # (B, T) each
        visible = self.sees(at[:, None], at, first[..., None], prompt[..., None])  # (B, T, T)
        return self.softmax(q, k, v, attn_mask=visible[:, None])

    def packed_kernel(self, qkv: Tensor, packing: Packing, ends: Tensor | None = None) -> Tensor:
        ends = no_ends(qkv[:, 0, 0, 0]) if ends is None else ends
        first, prompt = packing.in_groups(self.bounds, ends).unbind(-1)  # (N,) each
        hidden, bias = torch.stack((prompt.minimum(first), first), -1), None
        if self.block_size is not None:
            at = torch.arange(min(self.max_len, LONGEST))
            bias = hiding_bias(self.in_pattern(at[:, None], at))
        return PackedAttention.apply(qkv, packing, True, bias, hidden)

    def bounds(self, ends: Tensor) -> Tensor:
        """`first` and `prompt` of each token, (B, T, 2) for ends (B, T)."""
        at = torch.arange(ends.shape[1], device=ends.device)
        previous, current = (x[:, :-1] for x in line_starts(ends))
        prompt = torch.where(current > 0, first_end(ends)[:, None], self.kept).clamp(max=self.kept)
        return torch.stack((torch.maximum(at - self.window + 1, previous), prompt), -1)

    def remember(
        self, lengths: Tensor, q: Tensor, k: Tensor, v: Tensor, ends: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Also where the previous and the current line start and the prompt has ended, (B, 3)."""
        ends = no_ends(q[:, 0, :, 0]) if ends is None else ends
        starts = torch.stack(line_starts(ends)).gather(2, lengths.expand(2, -1)[..., None])
        previous, current = starts.squeeze(2)  # (B,) each
        prompt = torch.where(current > 0, first_end(ends), self.kept).clamp(max=self.kept)
        bounds = torch.stack((previous, current, prompt), 1)
        return super().remember(lengths, q, k, v) | {"bounds": bounds}

    def attend_step(
        self, positions: Tensor, state: GenerationState, q: Tensor, k: Tensor, v: Tensor,
        ends: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        y = super().attend_step(positions, state, q, k, v)
        if ends is not None:
            bounds, after = state.tensors["bounds"], positions + 1
            new = torch.stack((bounds[:, 1], after, bounds[:, 2].minimum(after)), 1)
            bounds.copy_(torch.where(ends[:, None], new, bounds))
        return y

    def visible(self, positions: Tensor, state: GenerationState) -> Tensor:
        held = self.ring_positions(positions)[:, : state.extent]
        previous, _, prompt = state.tensors["bounds"].split(1, 1)  # (B, 1) each
        last = positions[:, None]
        first = previous.maximum(last - self.window + 1)
        return (held >= 0) & self.sees(last, held, first, prompt)

    def slot(self, positions: Tensor) -> Tensor:
        """The first `kept` positions stay; the others share a ring."""
        ring = self.kept + (positions - self.kept) % self.window
        return torch.where(positions < self.kept, positions, ring)

    def ring_positions(self, positions: Tensor) -> Tensor:
        last = positions[:, None]
        kept = torch.arange(self.kept, device=positions.device)
        ring = torch.arange(self.window, device=positions.device)
        ring = last - (last - self.kept - ring) % self.window
        held = torch.where(ring < self.kept, -1, ring)
        return torch.cat((torch.where(kept <= last, kept, -1), held), 1)

    def pairs(self, length: int) -> int:
        at = torch.arange(length, device="cpu")
        query = at[:, None]
        first, prompt = query - self.window + 1, torch.tensor(self.kept, device="cpu")
        return int(self.sees(query, at, first, prompt).sum())

    def slots(self, length: int) -> int:
        return min(length, self.kept + self.window)


def no_ends(like: Tensor) -> Tensor:
    return torch.zeros_like(like, dtype=torch.bool)


def line_starts(ends: Tensor) -> tuple[Tensor, Tensor]:
    """For ends (B, T), where the previous and the current line of each token start, (B, T + 1)
    each; the last column is that of the next token."""
    at = torch.arange(1, ends.shape[1] + 1, device=ends.device)
    current = F.pad((ends * at).cummax(1).values, (1, 0))  # (B, T + 1)
    return current.gather(1, (current - 1).clamp(min=0)), current


def first_end(ends: Tensor) -> Tensor:
    """The position after the first end of each row of ends (B, T), (B,)."""
    return ends.int().argmax(1) + 1
