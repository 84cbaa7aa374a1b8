"""The mean of all tokens so far: a control without parameters."""

import torch
from torch import Tensor

from models.mixer import GenerationState, Mixer, length_mask, upcast


class RunningMean(Mixer):
    """y_t = Σ_{s<=t} x_s / t, positions counted from 1 (average attention: Zhang et al. 2018, arXiv
    1805.00631). A task it solves needs no learned mixing."""

    def forward(self, x: Tensor) -> Tensor:
        count = torch.arange(1, x.shape[1] + 1, device=x.device)[:, None]  # (T, 1)
        return (upcast(x).cumsum(1) / count).to(x.dtype)

    def prefill(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, GenerationState]:
        total = (upcast(x) * length_mask(lengths, x.shape[1])[..., None]).sum(1)
        return self(x), GenerationState({"total": total}, x.shape[1])

    def step(self, x: Tensor, positions: Tensor, state: GenerationState) -> Tensor:
        state.tensors["total"] += x
        return (state.tensors["total"] / (positions + 1)[:, None]).to(x.dtype)

    def flops(self, length: int) -> dict[str, int]:
        return {"mixing/mean": 2 * self.dim * length}

    def state_bytes(self, length: int) -> int:
        return 4 * self.dim
