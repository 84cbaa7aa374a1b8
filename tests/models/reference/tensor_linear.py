"""Attention to pairs of tokens with weights that factorise, as a sum over pairs."""

import torch
from torch import Tensor

from models.tensor_linear import TensorLinearAttention
from tests.models.reference.heads import affine, joined, projected
from tests.models.reference.tensor import pair_keys


def mix(mixer: TensorLinearAttention, x: Tensor) -> Tensor:
    q, k1, k2, v1, v2 = projected(mixer, x)
    return affine(mixer.out, joined(tensor_linear_attention(q, k1, k2, v1, v2, mixer.position)))


def tensor_linear_attention(
    q: Tensor, k1: Tensor, k2: Tensor, v1: Tensor, v2: Tensor, position: str = "none"
) -> Tensor:
    """Tensor attention with weights Σ_a φ(q_i)_a φ(k1_j)_a φ(k2_k)_a, φ = elu + 1; (..., T, K).

    position="rope" turns the keys' features in the numerator alone, as in `linear_attention`.
    """
    q, k1, k2 = (torch.nn.functional.elu(x) + 1 for x in (q, k1, k2))
    product = "...a,...ja,...ka->...jk"
    rows = []
    for i in range(q.shape[-2]):
        first, second = pair_keys(k1, i, position), pair_keys(k2, i, position)  # (..., i + 1, K)
        weights = torch.einsum(product, q[..., i, :], first, second)
        values = v1[..., : i + 1, :], v2[..., : i + 1, :]
        total = torch.einsum(product, q[..., i, :], k1[..., : i + 1, :], k2[..., : i + 1, :])
        mixed = torch.einsum("...jk,...ja,...ka->...a", weights, *values)
        rows.append(mixed / total.sum((-2, -1))[..., None])
    return torch.stack(rows, dim=-2)
