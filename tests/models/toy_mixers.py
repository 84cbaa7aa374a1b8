"""Mixers as a new user would write them: only `forward`, everything else inherited."""

import torch

from models.mixer import Mixer


class Multiplies(Mixer):
    """A running mean as a matrix product, then a linear layer."""

    def __init__(self, *sizes, **common):
        super().__init__(*sizes, **common)
        self.out = torch.nn.Linear(self.dim, self.dim)

    def forward(self, x):
        steps = torch.arange(1, x.shape[1] + 1, device=x.device, dtype=x.dtype)
        seen = torch.ones(len(steps), len(steps), device=x.device, dtype=x.dtype).tril()
        return self.out(seen @ x / steps[:, None])


def mix(mixer, x):
    """Reference implementation of `Multiplies`."""
    means = torch.stack([x[:, : t + 1].mean(1) for t in range(x.shape[1])], 1)
    return means @ mixer.out.weight.T + mixer.out.bias
