"""Short causal convolution: every channel mixes its own last few tokens.

"canon" is the Canon layer (Allen-Zhu 2025, arXiv 2512.17351), on queries, keys and values its
Canon-B; "silu" is what Mamba (Gu and Dao 2023), DeltaNet (Yang et al. 2024, arXiv 2406.06484) and
their descendants have in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from models.mixer import check_choice, check_sizes
from models.packing import Packing
from models.precision import widened, without_autocast

FORMS = ("none", "canon", "silu")
BLOCK = 2**18  # numbers of a block of rows: a megabyte, what the cache of a core holds


class ShortConvolution(nn.Module):
    """c_t = Σ_{s<W} w_s ⊙ x_{t-s}, zeros before the first token; C channels, W `width`.

    "canon": y_t = x_t + c_t; "silu": y_t = SiLU(c_t); "none": y_t = x_t, without parameters and
    state, so that a mixer need not ask whether it has a convolution. The kernel starts as
    PyTorch's `Conv1d` and Mamba's do, uniform in ±1/√W, without a bias.
    """

    def __init__(self, channels: int, form: str = "none", width: int = 4):
        super().__init__()
        check_choice("convolution", form, FORMS)
        check_sizes(convolution_width=width)
        self.channels, self.form, self.width = channels, form, width
        kernel = torch.empty(channels, width)  # its last column is for the token itself
        self.kernel = None if form == "none" else nn.Parameter(kernel)
        if self.kernel is not None:
            nn.init.uniform_(self.kernel, -(width**-0.5), width**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, T, C) to (B, T, C) of x's type, computed at least in float32."""
        if self.kernel is None:
            return x
        with without_autocast(x):
            sums = shifted_sums if x.is_cpu else grouped_convolution
            return self.finish(x, sums(widened(x), self.kernel))

    def forward_packed(self, x: Tensor, packing: Packing) -> Tensor:
        """`forward` of sequences that lie one behind another, x (N, ...) of C numbers a token."""
        if self.kernel is None:
            return x
        flat = x.flatten(1)  # (N, C)
        groups = [group.unpad(self(group.pad(flat))) for group in packing.groups]
        return packing.join(groups).view_as(x)

    def finish(self, x: Tensor, mixed: Tensor) -> Tensor:
        """y from x and c, both (..., C)."""
        return (widened(x) + mixed if self.form == "canon" else F.silu(mixed)).to(x.dtype)

    def recent(
        self, x: Tensor, lengths: Tensor, projection: Callable[[Tensor], Tensor]
    ) -> dict[str, Tensor]:
        """What `step` needs after lengths[b] tokens of row b of x (B, T, D): the last W - 1.

        Under the name "recent", projected to (B, W - 1, C), zeros where there are none; nothing
        for "none".
        """
        if self.kernel is None:
            return {}
        positions = lengths[:, None] - torch.arange(self.width - 1, 0, -1, device=x.device)
        rows = torch.arange(len(x), device=x.device)[:, None]
        kept = projection(x[rows, positions.clamp(min=0)])  # (B, W - 1, C)
        return {"recent": kept * (positions >= 0)[..., None]}

    def step(self, x: Tensor, tensors: dict[str, Tensor]) -> Tensor:
        """One more token a row: x (B, C) to (B, C); moves tensors["recent"] on by it."""
        if self.kernel is None:
            return x
        window = torch.cat((tensors["recent"], x[:, None]), dim=1)  # (B, W, C)
        tensors["recent"].copy_(window[:, 1:])
        with without_autocast(x):
            return self.finish(x, (widened(window) * self.kernel.T).sum(1))

    def flops(self, length: int) -> dict[str, int]:
        """A multiply-add per channel, token and column of the kernel."""
        if self.kernel is None:
            return {}
        return {"mixing/convolution": 2 * self.width * self.channels * length}

    def state_bytes(self) -> int:
        """Of what `recent` holds, in float32."""
        return 0 if self.kernel is None else 4 * (self.width - 1) * self.channels


def grouped_convolution(x: Tensor, kernel: Tensor) -> Tensor:
    """c (B, T, C) of x (B, T, C) and kernel (C, W), by PyTorch's convolution."""
    rows = F.pad(x.transpose(1, 2), (kernel.shape[1] - 1, 0))  # (B, C, W - 1 + T)
    return F.conv1d(rows, kernel[:, None], groups=len(kernel)).transpose(1, 2)


def shifted_sums(x: Tensor, kernel: Tensor) -> Tensor:
    """As `grouped_convolution`; on a CPU in less time, forward and backward."""
    mixed: Tensor = ShiftedSums.apply(x, kernel)
    return mixed


class ShiftedSums(torch.autograd.Function):
    """c_t = Σ_s w_s ⊙ x_{t-s} a shift at a time, in blocks of rows that stay in the cache."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: Tensor) -> Tensor:
        """x (B, T, C), kernel (C, W)."""
        ctx.save_for_backward(x, kernel)
        weights = by_shift(kernel)
        mixed = torch.empty_like(x, memory_format=torch.contiguous_format)
        for rows, out in zip(blocks(x), blocks(mixed), strict=True):
            torch.mul(rows, weights[0], out=out)
            for shift in range(1, min(len(weights), x.shape[1])):
                out[:, shift:].addcmul_(rows[:, :-shift], weights[shift])
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        """grad (B, T, C): x's gradient is the same sum towards the past."""
        x, kernel = ctx.saved_tensors
        weights = by_shift(kernel)
        products = torch.zeros(len(weights), *blocks(x)[0].shape, dtype=x.dtype)
        x_grad = torch.empty_like(x, memory_format=torch.contiguous_format)
        for rows, out, arriving in zip(blocks(x), blocks(x_grad), blocks(grad), strict=True):
            own = products[:, : len(rows)]  # (W, rows, T, C)
            torch.mul(arriving, weights[0], out=out)
            own[0].addcmul_(rows, arriving)
            for shift in range(1, min(len(weights), x.shape[1])):
                out[:, :-shift].addcmul_(arriving[:, shift:], weights[shift])
                own[shift, :, shift:].addcmul_(rows[:, :-shift], arriving[:, shift:])
        return x_grad, products.sum((1, 2)).flip(0).T


def by_shift(kernel: Tensor) -> Tensor:
    """Kernel (C, W) as (W, C): what the token itself, the one before it, ... are multiplied by."""
    return kernel.T.flip(0)


def blocks(x: Tensor) -> tuple[Tensor, ...]:
    """x (B, T, C) in parts of whole rows, of about BLOCK numbers each."""
    return x.split(max(1, BLOCK // max(1, x[0].numel())))
