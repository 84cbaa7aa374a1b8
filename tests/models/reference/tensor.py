"""Attention to pairs of tokens, as a sum over pairs."""

import torch
from torch import Tensor

from models.tensor import TensorAttention
from tests.models.reference.attention import rotated
from tests.models.reference.heads import affine, joined, projected


def mix(mixer: TensorAttention, x: Tensor) -> Tensor:
    q, k1, k2, v1, v2 = projected(mixer, x)
    y = tensor_attention(q, k1, k2, v1, v2, mixer.position, mixer.scale)
    return affine(mixer.out, joined(y))


def tensor_attention(
    q: Tensor, k1: Tensor, k2: Tensor, v1: Tensor, v2: Tensor,
    position: str = "none", scale: float | None = None,
) -> Tensor:  # fmt: skip
    """Softmax of each token i over all pairs j, k <= i; every tensor (..., T, K).

    s_ijk = scale Σ_a q_ia k1_ja k2_ka, scale 1 / K unless given; position="rope" turns k1_j by
    i - j and k2_k by i - k.
    """
    scale = 1 / q.shape[-1] if scale is None else scale
    rows = []
    for i in range(q.shape[-2]):
        first, second = pair_keys(k1, i, position), pair_keys(k2, i, position)  # (..., i + 1, K)
        scores = scale * torch.einsum("...a,...ja,...ka->...jk", q[..., i, :], first, second)
        weights = scores.flatten(-2).softmax(-1).view_as(scores)
        values = v1[..., : i + 1, :], v2[..., : i + 1, :]
        rows.append(torch.einsum("...jk,...ja,...ka->...a", weights, *values))
    return torch.stack(rows, dim=-2)


def pair_keys(keys: Tensor, i: int, position: str) -> Tensor:
    """Keys 0..i of (..., T, K) as query i sees them: key j turned by i - j under rope."""
    seen = keys[..., : i + 1, :]
    return rotated(seen.flip(-2)).flip(-2) if position == "rope" else seen
