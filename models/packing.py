"""Packed sequences: different lengths, one after another, without padding.

Layers that act on single tokens run on all tokens at once, (N, D). A mixer without its own packed
form sees padded groups of similar length, (B, T, D). On a CPU, compiled kernels take packed tokens
directly (`PackedAttention`, `PackedRecurrence`).
"""

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from models import cpu_attention, cpu_recurrence

GROUP_OVERHEAD = 300  # the cost of one more group, in tokens of padding
GRAINS = 16  # groups end at multiples of 1/16 of the sequences
# Measured on one core (H = 4, 4096 tokens, forward and backward): at K = 16 and 600 tokens softmax
# takes 12 ms instead of 27 padded, linear 11 instead of 16; at K = 64 and 64 tokens 28 instead of
# 33, and 31 instead of 82. Beyond that the kernel's quadratic cost exceeds that of chunks.
MAX_KERNEL_LENGTH = 600  # tokens


class Packing:
    """The layout of B sequences in N packed tokens on a CPU, shortest first, then filler.

    lengths (B,) ascending; offsets (B + 1,): sequence b is offsets[b] to offsets[b + 1]; positions
    (N,) within the sequence. `size` is N, a multiple of `size_step`, since oneDNN compiles its
    bfloat16 kernels for every N. `width_step` rounds T of padded groups, up to `most_width`.
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
        self.positions = torch.zeros(self.size, dtype=torch.int64)
        self.positions[: self.offsets[-1]] = ranges(np.zeros_like(lengths), lengths)
        self.longest = int(lengths[-1])
        self._width_step, self._most_width = width_step, most_width or self.longest

    @functools.cached_property
    def groups(self) -> "list[Group]":
        grain = max(1, len(self.lengths) // GRAINS)
        ends = np.cumsum(group_sizes(self.lengths, grain))
        groups = []
        for start, end in zip((0, *ends[:-1]), ends, strict=True):
            width = min(rounded_up(int(self.lengths[end - 1]), self._width_step), self._most_width)
            groups.append(Group(self.lengths[start:end], int(self.offsets[start]), width))
        return groups

    def map_padded(self, function: Callable[..., Tensor], x: Tensor, **named: Tensor) -> Tensor:
        """Apply `function` (B, T, ...) -> (B, T, ...) to padded groups of packed tokens (N, ...).
        Returns (N, ...), zeros for the filler."""
        parts = []
        for group in self.groups:
            others = {name: group.pad(value) for name, value in named.items()}
            parts.append(group.unpad(function(group.pad(x), **others)))
        missing = self.size - int(self.offsets[-1])
        if missing:
            parts.append(parts[0].new_zeros(missing, *parts[0].shape[1:]))
        return torch.cat(parts)

    def in_threads(self, work: Callable[[np.ndarray], None]) -> None:
        """Call `work` on the offsets of shares of the sequences, in as many threads as PyTorch."""
        offsets, threads = self.offsets, torch.get_num_threads()
        if threads == 1:
            work(offsets)
            return
        cuts = np.unique(offsets.searchsorted(np.linspace(0, offsets[-1], threads + 1)))
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda cut: work(offsets[cut[0] : cut[1] + 1]), pairwise(cuts)))


class Group:
    """Sequences of `lengths` (B,) from packed token `first` on, padded to (B, T).

    tokens: the slice of packed tokens. source (B * T,): which of them fills each padded place, the
    last one repeated. kept (tokens,): the padded place of each.
    """

    def __init__(self, lengths: np.ndarray, first: int, width: int) -> None:
        starts, columns = lengths.cumsum() - lengths, np.arange(width)
        source = starts[:, None] + np.minimum(columns, lengths[:, None] - 1)
        kept = np.flatnonzero(columns < lengths[:, None])
        self.tokens, self.shape = slice(first, first + len(kept)), (len(lengths), width)
        self.source, self.kept = torch.from_numpy(source.reshape(-1)), torch.from_numpy(kept)

    def pad(self, x: Tensor) -> Tensor:
        """Packed (N, ...) to (B, T, ...)."""
        return x[self.tokens].index_select(0, self.source).unflatten(0, self.shape)

    def unpad(self, y: Tensor) -> Tensor:
        """Padded (B, T, ...) to this group's packed tokens (n, ...)."""
        return y.flatten(0, 1).index_select(0, self.kept)


def ranges(starts: np.ndarray, counts: np.ndarray) -> Tensor:
    """starts[b], starts[b] + 1, ..., counts[b] of them, for all b one after another."""
    skipped = np.repeat(starts - counts.cumsum() + counts, counts)
    return torch.from_numpy(skipped + np.arange(len(skipped)))


def rounded_up(size: int, step: int) -> int:
    return -(-size // step) * step


def group_sizes(lengths: np.ndarray, grain: int) -> list[int]:
    """Group sizes for sorted `lengths` (B,): cut where it saves most padding, at a multiple of
    `grain`, then each side likewise, while a cut saves more than GROUP_OVERHEAD tokens."""
    cuts = np.arange(grain, len(lengths), grain)
    saved = cuts * (lengths[-1] - lengths[cuts - 1])  # tokens
    if not len(cuts) or saved.max() <= GROUP_OVERHEAD:
        return [len(lengths)]
    cut = cuts[saved.argmax()]
    return group_sizes(lengths[:cut], grain) + group_sizes(lengths[cut:], grain)


class PackedAttention(torch.autograd.Function):
    """Softmax or linear attention on packed q, k, v (N, 3, H, K) in float32, to (N, H, K).

    Softmax takes an optional `bias` (L, L) on scores, L a multiple of KEY_LANES, and `masked`
    (N, 2): each query does not see positions masked[0] to masked[1] - 1. It must see itself.
    """

    @staticmethod
    def forward(
        ctx: Any,
        qkv: Tensor,
        packing: Packing,
        softmax: bool,
        bias: Tensor | None = None,
        masked: Tensor | None = None,
    ) -> Tensor:
        qkv = qkv.contiguous()
        out = qkv.new_zeros(len(qkv), *qkv.shape[2:])
        normalisers = qkv.new_empty(out.shape[:2])
        arrays = qkv.numpy(), out.unsqueeze(1).numpy(), normalisers.numpy()
        added = (qkv.new_empty(0, 0) if bias is None else bias).numpy()
        unseen = (torch.empty(0, 2, dtype=torch.int64) if masked is None else masked).numpy()
        ctx.packing, ctx.options = packing, (softmax, added, unseen)
        packing.in_threads(lambda offsets: cpu_attention.attend(*arrays, offsets, *ctx.options))
        ctx.save_for_backward(qkv, out, normalisers)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        qkv, out, normalisers = ctx.saved_tensors
        result = torch.zeros_like(qkv)
        outputs = [x.contiguous().unsqueeze(1).numpy() for x in (out, gradient)]
        arrays = qkv.numpy(), *outputs, normalisers.numpy(), result.numpy()
        ctx.packing.in_threads(
            lambda offsets: cpu_attention.attend_backward(*arrays, offsets, *ctx.options)
        )
        return result, None, None, None, None


class PackedRecurrence(torch.autograd.Function):
    """The recurrence of `models.recurrent` on packed tokens in float32, from S = 0 in every
    sequence: q (N, H, K); k, v (N, n, H, K); beta (N, n, H) or None; log_decay (N, H, K or 1) or
    None."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        beta: Tensor | None,
        log_decay: Tensor | None,
        packing: Packing,
    ) -> Tensor:
        none = q.new_empty(0, 0, 0)
        decay = none if log_decay is None else log_decay.exp()
        inputs = [x.contiguous() for x in (q, k, v, none if beta is None else beta, decay)]
        y = torch.zeros_like(inputs[0])
        arrays = [x.numpy() for x in (*inputs, y)]
        packing.in_threads(lambda offsets: cpu_recurrence.recur(*arrays, offsets))
        ctx.packing = packing
        ctx.save_for_backward(*inputs)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs = ctx.saved_tensors
        gradients = [torch.zeros_like(x) for x in inputs]
        arrays = [x.numpy() for x in (*inputs, gradient.contiguous(), *gradients)]
        ctx.packing.in_threads(lambda offsets: cpu_recurrence.recur_backward(*arrays, offsets))
        wanted = zip(gradients, ctx.needs_input_grad, strict=False)
        return *(x if needed else None for x, needed in wanted), None
