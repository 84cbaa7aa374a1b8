"""Short causal convolution: every channel mixes its own last few tokens.

"canon" is the Canon layer (Allen-Zhu 2025, arXiv 2512.17351), on queries, keys and values its
Canon-B; "silu" is what Mamba (Gu and Dao 2023), DeltaNet (Yang et al. 2024, arXiv 2406.06484) and
their descendants have in its place.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.mixer import check_choice, check_sizes, widened, without_autocast
from models.packing import Packing

FORMS = ("none", "canon", "silu")


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
            rows = F.pad(widened(x).transpose(1, 2), (self.width - 1, 0))  # (B, C, W - 1 + T)
            mixed = F.conv1d(rows, self.kernel[:, None], groups=self.channels)  # (B, C, T)
            return self.finish(x, mixed.transpose(1, 2))

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
