"""Initial values of the parts of the transformer that are not a mixer's own."""

from __future__ import annotations

import torch
from torch import nn

SINUSOIDS_RMS = 0.5**0.5  # of sines and cosines, at any width


def xavier_uniform(module: nn.Module) -> None:
    """Xavier-uniform for every weight matrix inside (Yang et al. 2024, section 6), biases zero."""
    for name, parameter in module.named_parameters():
        if parameter.dim() >= 2:
            nn.init.xavier_uniform_(parameter)
        elif name.split(".")[-1] == "bias":
            nn.init.zeros_(parameter)


@torch.no_grad()
def scale_embedding(embedding: nn.Embedding, ratio: float | None) -> None:
    """Scale the token embedding to `ratio` times the sinusoids' root mean square; None: not at all.

    Xavier's values shrink with V + D beside the positions that are added to them: for a vocabulary
    of 20, from a ratio of 0.33 at D = 16 to 0.09 at D = 512.
    """
    if ratio is not None:
        weight = embedding.weight
        weight.mul_(ratio * SINUSOIDS_RMS / weight.square().mean().sqrt())
