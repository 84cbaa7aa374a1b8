"""Sequences of unlike lengths one behind another, without padding.

Layers that act on one token at a time run on all tokens at once, (N, D); a mixer that knows
nothing of it sees padded groups of sequences of like lengths, (B, T, D).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

# One more group costs a mixer as much as this many tokens of padding.
GROUP_OVERHEAD = 300
GRAINS = 16  # groups end at multiples of this share of the sequences


@dataclass(frozen=True)
class Group:
    """Sequences that are padded together to (B, T), T the longest of them.

    tokens: where they lie among the packed. source (B * T,): which of these is at each padded
    place; the last of a sequence is repeated. kept (tokens,): where each lies among the padded.
    """

    tokens: slice
    shape: tuple[int, int]
    source: Tensor
    kept: Tensor

    @classmethod
    def of(cls, lengths: np.ndarray, first: int, width: int) -> Group:
        """Of sequences of `lengths` (B,), whose first token is the packed token `first`."""
        starts = lengths.cumsum() - lengths
        columns = np.arange(width)
        source = starts[:, None] + np.minimum(columns, lengths[:, None] - 1)
        kept = np.flatnonzero(columns < lengths[:, None])
        tokens = slice(first, first + len(kept))
        shape = (len(lengths), width)
        return cls(tokens, shape, torch.from_numpy(source.reshape(-1)), torch.from_numpy(kept))

    def pad(self, x: Tensor) -> Tensor:
        """Packed (N, ...) to (B, T, ...)."""
        return _Pad.apply(x[self.tokens], self.source, self.kept).unflatten(0, self.shape)

    def unpad(self, y: Tensor) -> Tensor:
        """(B, T, ...) to the packed tokens (n, ...) of this group."""
        return _Unpad.apply(y.flatten(0, 1), self.kept)


class Packing:
    """How B sequences lie in N packed tokens, on a CPU: the shortest first, then filler.

    lengths (B,), ascending, or ValueError; offsets (B + 1,): sequence b is offsets[b] to
    offsets[b + 1]; positions (N,) within the sequence. `size` is N, a multiple of `size_step`:
    oneDNN compiles its bfloat16 kernels for every N. `width_step` rounds T of the padded groups,
    up to `most_width`.
    """

    def __init__(
        self,
        lengths: np.ndarray,
        size_step: int = 1,
        width_step: int = 1,
        most_width: int | None = None,
    ) -> None:
        if len(lengths) == 0 or lengths[0] < 1 or (np.diff(lengths) < 0).any():
            raise ValueError(f"lengths must be at least 1, the shortest first, not {lengths}")
        self.lengths = lengths
        self.offsets = np.concatenate(([0], lengths.cumsum()))
        self.size = rounded_up(int(self.offsets[-1]), size_step)
        positions = np.zeros(self.size, np.int64)
        positions[: self.offsets[-1]] = np.arange(self.offsets[-1]) - np.repeat(
            self.offsets[:-1], lengths
        )
        self.positions = torch.from_numpy(positions)
        self.longest = int(lengths[-1])
        self._width_step, self._most_width = width_step, most_width or self.longest

    @functools.cached_property
    def groups(self) -> list[Group]:
        """The sequences in groups of like lengths."""
        grain = max(1, len(self.lengths) // GRAINS)
        ends = np.cumsum(sizes_without_padding(self.lengths, grain, GROUP_OVERHEAD))
        groups = []
        for start, end in zip((0, *ends[:-1]), ends, strict=True):
            width = min(rounded_up(int(self.lengths[end - 1]), self._width_step), self._most_width)
            groups.append(Group.of(self.lengths[start:end], int(self.offsets[start]), width))
        return groups

    def join(self, parts: list[Tensor]) -> Tensor:
        """The packed tokens of all groups, in order, and zeros for the filler: (N, ...)."""
        missing = self.size - int(self.offsets[-1])
        if missing:
            parts = [*parts, parts[0].new_zeros(missing, *parts[0].shape[1:])]
        return torch.cat(parts)


class _Pad(torch.autograd.Function):
    """Rows `source` of x. What is repeated gets no gradient: nothing that counts depends on it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, source: Tensor, kept: Tensor) -> Tensor:
        ctx.save_for_backward(kept)
        return x.index_select(0, source)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (kept,) = ctx.saved_tensors
        return gradient.index_select(0, kept), None, None


class _Unpad(torch.autograd.Function):
    """Rows `kept` of x, all different; index_select's own gradient would add instead of copy."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kept: Tensor) -> Tensor:
        ctx.save_for_backward(kept)
        ctx.rows = len(x)
        return x.index_select(0, kept)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (kept,) = ctx.saved_tensors
        zeros = gradient.new_zeros(ctx.rows, *gradient.shape[1:])
        return zeros.index_copy_(0, kept, gradient), None


def rounded_up(size: int, step: int) -> int:
    """The least multiple of `step` that is at least `size`."""
    return -(-size // step) * step


def sizes_without_padding(lengths: np.ndarray, grain: int, overhead: int) -> list[int]:
    """The sizes of the groups of sequences whose sorted lengths are `lengths` (B,).

    The cut, at a multiple of `grain`, that saves most padding first, then each side likewise, as
    long as it saves more than `overhead` tokens.
    """
    cuts = np.arange(grain, len(lengths), grain)
    saved = cuts * (lengths[-1] - lengths[cuts - 1])  # tokens
    if not len(cuts) or saved.max() <= overhead:
        return [len(lengths)]
    cut = cuts[saved.argmax()]
    shorter = sizes_without_padding(lengths[:cut], grain, overhead)
    return shorter + sizes_without_padding(lengths[cut:], grain, overhead)
