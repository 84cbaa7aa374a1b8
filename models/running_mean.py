"""The mean of all tokens so far: a control that forgets nothing, chooses nothing, costs nothing."""

from __future__ import annotations

import torch
from torch import Tensor

from models.mixer import GenerationState, Mixer, is_read, widened


class RunningMean(Mixer):
    """y_t = Σ_{s<=t} x_s / t, positions t counted from 1. There are no parameters.

    What a model still solves with it, its FFNs and the chain solve, not the mixing. (Average
    attention: Zhang et al. 2018, arXiv 1805.00631.)
    """

    takes_rope = False

    def forward(self, x: Tensor) -> Tensor:
        """Mix x (B, T, D) into (B, T, D)."""
        count = torch.arange(1, x.shape[1] + 1, device=x.device)[:, None]  # (T, 1)
        return (widened(x).cumsum(1) / count).to(x.dtype)

    def prefill(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, GenerationState]:
        """As `Mixer.prefill`; the state is the sum (B, D)."""
        total = (widened(x) * is_read(lengths, x.shape[1])[..., None]).sum(1)
        return self(x), GenerationState({"total": total}, lengths, x.shape[1])

    def step(self, x: Tensor, positions: Tensor, state: GenerationState) -> Tensor:
        """As `Mixer.step`; one addition and one division a channel."""
        state.advance(positions)
        state.tensors["total"] += x
        return (state.tensors["total"] / state.lengths[:, None]).to(x.dtype)

    def flops(self, length: int) -> dict[str, int]:
        """An addition and a division a channel and token."""
        return {"mixing/mean": 2 * self.dim * length}

    def step_flops(self, position: int) -> int:
        """The same for every token."""
        return 2 * self.dim

    def state_bytes(self, length: int) -> int:
        """D float32 numbers, whatever the length."""
        return 4 * self.dim
