"""Attention to pairs of tokens: a sum over pairs, and with Kronecker products as it is defined."""

from __future__ import annotations

import torch
from torch import Tensor

from models.tensor import TensorAttention
from tests.models.reference.attention import rotated, turned
from tests.models.reference.heads import affine, joined, projected


def mix(mixer: TensorAttention, x: Tensor) -> Tensor:
    """x (B, T, D) to (B, T, D)."""
    q, k1, k2, v1, v2 = projected(mixer, x)
    return affine(
        mixer.out, joined(tensor_attention(q, k1, k2, v1, v2, mixer.position, mixer.scale))
    )


def tensor_attention(
    q: Tensor,
    k1: Tensor,
    k2: Tensor,
    v1: Tensor,
    v2: Tensor,
    position: str = "none",
    scale: float | None = None,
) -> Tensor:
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


def kronecker_tensor_attention(
    q: Tensor, k1: Tensor, k2: Tensor, v1: Tensor, v2: Tensor, position: str = "none"
) -> Tensor:
    """The same as the definitions write it, with Kronecker products; every tensor (T, K).

    A_i,(j,k) = exp((1/K) Q_i (K1 column-wise Kronecker K2)ᵀ); under rope exp((1/K) Q_i R (K1_j ⊗
    K2_k)), R the row-wise Kronecker product (K, K²) of R_{i-j} and R_{i-k}. A is over all pairs:
    those with a later token are left out here. Values are the column-wise product of V1 and V2.
    """
    length, width = q.shape
    eye = torch.eye(width, dtype=q.dtype)
    turns = [turned(eye, n).T for n in range(length)]  # R_n: column a is the turned unit vector a
    rows = []
    for i in range(length):
        pairs = [(j, k) for j in range(i + 1) for k in range(i + 1)]
        scores = []
        for j, k in pairs:
            if position == "rope":
                both = zip(turns[i - j], turns[i - k], strict=True)
                matrix = torch.stack([torch.kron(a, b) for a, b in both])  # (K, K²)
                scores.append(q[i] @ matrix @ torch.kron(k1[j], k2[k]) / width)
            else:
                scores.append(q[i] @ (k1[j] * k2[k]) / width)
        weights = torch.stack(scores).exp()
        values = torch.stack([v1[j] * v2[k] for j, k in pairs])  # (pairs, K)
        rows.append(weights @ values / weights.sum())
    return torch.stack(rows)


def pair_keys(keys: Tensor, i: int, position: str) -> Tensor:
    """Keys 0..i of (..., T, K) as query i sees them: key j turned by i - j under rope."""
    seen = keys[..., : i + 1, :]
    if position != "rope":
        return seen
    return rotated(seen.flip(-2)).flip(-2)
