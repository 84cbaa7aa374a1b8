"""Softmax attention that erases finished lines of the chain (compare PENCIL, arXiv 2503.14337)."""

import functools
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from models.attention import SoftmaxAttention
from models.mixer import GenerationState
from models.packing import MAX_KERNEL_LENGTH, PackedAttention, Packing
from models.sparse import default_block_size, mask_bias


class LastLines(SoftmaxAttention):
    """A token attends to its own line and to the line before; older tokens are dropped
    (`keep_prompt`: except the prompt). `sparse` adds the pattern of `SparseAttention`, k = c = 1.

    The task's `line_ends` end a line; the prompt is the first line. `longest_lines`: the most
    tokens, end included, of a prompt and of a line of the chain (default: max_len each); they
    limit the window. `ends` marks the tokens that end a line; None means that there is a single
    line. FLOPs are an upper bound: each query with as many keys as `longest_lines` allows.
    """

    sees_lines = has_kernel = True

    def __init__(
        self,
        *sizes: Any,
        longest_lines: tuple[int, int] | None = None,
        keep_prompt: bool = False,
        sparse: bool = False,
        **shared: Any,
    ):
        super().__init__(*sizes, **shared)
        prompt, line = longest_lines or (self.max_len, self.max_len)
        self.kept = min(prompt, self.max_len) if keep_prompt else 0
        self.window = min(line + (line if keep_prompt else max(prompt, line)), self.max_len)
        self.block_size = default_block_size(self.max_len) if sparse else 1
        self.fixed = self.kept // self.block_size
        self.ring = max(1, -(-min(self.window, self.max_len - self.kept) // self.block_size))

    def sees(self, query: Tensor, key: Tensor, previous: Any, prompt: Any) -> Tensor:
        """Whether position `query` attends to `key`; `previous`: start of the previous line;
        `prompt`: number of leading positions that stay visible."""
        recent = (key >= previous) & (query - key < self.window)
        return (recent | (key < prompt)) & self.in_pattern(query, key)

    def in_pattern(self, query: Tensor, key: Tensor) -> Tensor:
        ends_block = key % self.block_size == self.block_size - 1
        return (key <= query) & ((query - key < self.block_size) | ends_block)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, ends: Tensor | None = None) -> Tensor:
        at = torch.arange(q.shape[2], device=q.device)
        lines = self.lines_of(ends, q[:, 0, :, 0])[:, :-1, None]  # (B, T, 1, 3)
        previous, _, prompt = lines.unbind(-1)
        visible = self.sees(at[:, None], at, previous, prompt)  # (B, T, T)
        return self.softmax(q, k, v, attn_mask=visible[:, None])

    def packed_kernel(self, qkv: Tensor, packing: Packing, ends: Tensor | None = None) -> Tensor:
        ends = torch.zeros(len(qkv), dtype=torch.bool) if ends is None else ends
        lines = packing.map_padded(lambda ends: self.lines_of(ends, ends)[:, :-1], ends)  # (N, 3)
        previous, _, prompt = lines.unbind(-1)
        first = previous.maximum(packing.positions - self.window + 1)
        masked = torch.stack((prompt.minimum(first), first), -1)
        return PackedAttention.apply(qkv, packing, True, self.bias, masked)

    @functools.cached_property
    def bias(self) -> Tensor | None:
        at = torch.arange(min(self.max_len, MAX_KERNEL_LENGTH))
        return None if self.block_size == 1 else mask_bias(self.in_pattern(at[:, None], at))

    def lines_of(self, ends: Tensor | None, like: Tensor) -> Tensor:
        """For each token of ends (B, T), where the previous line begins, where its own begins, and
        how many first positions stay visible, (B, T + 1, 3); entry T is for the token after the
        sequence. `like` is (B, T)."""
        ends = torch.zeros_like(like, dtype=torch.bool) if ends is None else ends
        after = torch.arange(1, ends.shape[1] + 1, device=ends.device)
        current = F.pad((ends * after).cummax(1).values, (1, 0))  # (B, T + 1)
        previous = current.gather(1, (current - 1).clamp(min=0))
        prompt = F.pad(torch.where(ends, after, self.kept), (1, 0), value=self.kept)
        return torch.stack((previous, current, prompt.cummin(1).values), -1)

    def state_after(
        self, lengths: Tensor, q: Tensor, k: Tensor, v: Tensor, ends: Tensor | None = None
    ) -> dict[str, Tensor]:
        """The base's state, and `lines_of` the next token, (B, 3)."""
        rows = torch.arange(len(lengths), device=lengths.device)
        starts = self.lines_of(ends, q[:, 0, :, 0])[rows, lengths]
        return super().state_after(lengths, q, k, v) | {"line_starts": starts}

    def attend_step(
        self, positions: Tensor, state: GenerationState, q: Tensor, k: Tensor, v: Tensor,
        ends: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        y = super().attend_step(positions, state, q, k, v)
        if ends is not None:
            starts, after = state.tensors["line_starts"], positions + 1
            new = torch.stack((starts[:, 1], after, starts[:, 2].minimum(after)), 1)
            starts.copy_(torch.where(ends[:, None], new, starts))
        return y

    def visible(self, positions: Tensor, state: GenerationState) -> Tensor:
        held = self.ring_positions(positions)  # (B, slots)
        previous, _, prompt = state.tensors["line_starts"].split(1, 1)  # (B, 1) each
        return (held >= 0) & self.sees(positions[:, None], held, previous, prompt)

    def slot(self, positions: Tensor) -> Tensor:
        """Tokens inside blocks share B - 1 slots; of block ends the first `fixed` stay, the others
        share a ring."""
        size, number = self.block_size, positions // self.block_size
        ring = self.fixed + (number - self.fixed) % self.ring
        ends = size - 1 + torch.where(number < self.fixed, number, ring)
        return torch.where(positions % size == size - 1, ends, positions % size)

    def ring_positions(self, positions: Tensor) -> Tensor:
        last, size = positions[:, None], self.block_size
        inside = torch.arange(size - 1, device=last.device)
        slots = torch.arange(self.fixed + self.ring, device=last.device)
        period = torch.where(slots < self.fixed, self.max_len, self.ring)
        ended = (last + 1) // size - 1  # the last block that has ended
        held = ended - (ended - slots) % period
        held = held.where(held >= slots.clamp(max=self.fixed), -1) * size + size - 1
        return torch.cat((last - (last - inside) % size, held), 1)

    def pairs(self, length: int) -> int:
        at = torch.arange(length)
        return int(self.sees(at[:, None], at, 0, self.kept).sum())

    def slots(self, length: int) -> int:
        ended, size = length // self.block_size, self.block_size
        return min(length - ended, size - 1) + min(ended, self.fixed + self.ring)
