"""Positions: sinusoids added to the embedding, and rotary positions inside a mixer."""

import torch
from torch import Tensor

from common import UserError

CHOICES = ("sinusoidal", "rope", "none")


def sinusoids(max_len: int, dim: int) -> Tensor:
    """(max_len, dim): sines in the even columns, cosines in the odd (Vaswani et al. 2017, 3.5)."""
    angles = _angles(max_len, dim)  # (max_len, dim / 2)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)  # (max_len, dim)


def rotary_table(max_len: int, head_dim: int, name: str = "head_dim") -> Tensor:
    """(2, max_len, head_dim / 2): cosines, then sines, of RoFormer's angles (Su et al. 2021).

    Raises `UserError` for an odd head_dim, which is called `name`.
    """
    if head_dim % 2:
        raise UserError(f"position=rope needs an even {name}, not {head_dim}")
    angles = _angles(max_len, head_dim)
    return torch.stack((angles.cos(), angles.sin()))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair (x[2a], x[2a + 1]) of the last axis by its angle (RoFormer eq. 34).

    x: (..., K); cos and sin: broadcastable to (..., K / 2). Returns x's shape and type.
    """
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
    return turned.flatten(-2).to(x.dtype)  # (..., K / 2, 2) -> (..., K)


def _angles(max_len: int, dim: int) -> Tensor:
    """(max_len, dim / 2): position times 10000^(-2a / dim), in float64 until the last moment."""
    frequencies = 10000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    return torch.outer(torch.arange(max_len, dtype=torch.float64), frequencies).float()
