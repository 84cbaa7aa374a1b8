"""Attention with weights 1 + s + s²/2."""

import torch
from torch import Tensor

from models.taylor import TaylorAttention
from tests.models.reference.attention import rotated
from tests.models.reference.heads import affine, by_heads, convolved, joined


def mix(mixer: TaylorAttention, x: Tensor) -> Tensor:
    qkv = torch.cat((affine(mixer.qk, x), affine(mixer.v, x)), dim=-1)
    parts = convolved(mixer.convolution, qkv).split((mixer.width, mixer.width, mixer.dim), dim=-1)
    q, k, v = (by_heads(part, mixer.num_heads) for part in parts)
    if mixer.position == "rope":
        q, k = rotated(q), rotated(k)
    rows = []
    for i in range(x.shape[1]):
        scores = (q[:, :, i : i + 1] * k[:, :, : i + 1]).sum(-1) / mixer.feature_dim**0.5
        weights = 1 + scores + scores**2 / 2  # (B, H, i + 1)
        total = weights.sum(-1, keepdim=True)
        rows.append((weights[..., None] * v[:, :, : i + 1]).sum(-2) / total)
    return affine(mixer.out, joined(torch.stack(rows, dim=2)))
