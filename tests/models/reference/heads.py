"""Queries, keys, values and outputs by heads, for all references."""

import torch
from torch import Tensor

from models.attention import AttentionMixer, ShortConvolution
from tests.models.reference.attention import Attended, rotated, softmax_attention


def projected(mixer: AttentionMixer, x: Tensor) -> list[Tensor]:
    """q, k, v, or whatever `parts` there are, (B, H, T, K) each, of x (B, T, D)."""
    qkv = convolved(mixer.convolution, affine(mixer.qkv, x))
    return [by_heads(part, mixer.num_heads) for part in qkv.chunk(mixer.parts, -1)]


def softmax_mix(mixer: AttentionMixer, x: Tensor, attended: Attended) -> Tensor:
    """What softmax attention of each token i (from 1) to attended(i) makes of x (B, T, D)."""
    q, k, v = projected(mixer, x)
    if mixer.position == "rope":
        q, k = rotated(q), rotated(k)
    return affine(mixer.out, joined(softmax_attention(q, k, v, attended)))


def affine(layer: torch.nn.Linear, x: Tensor) -> Tensor:
    return x @ layer.weight.T + (0 if layer.bias is None else layer.bias)


def by_heads(x: Tensor, num_heads: int) -> Tensor:
    """(B, T, H * K) to (B, H, T, K): head h has channels h K to (h + 1) K."""
    return torch.stack(x.chunk(num_heads, -1), dim=1)


def joined(y: Tensor) -> Tensor:
    """(B, H, T, K) to (B, T, H * K)."""
    return torch.cat(y.unbind(1), dim=-1)


def convolved(convolution: ShortConvolution, x: Tensor) -> Tensor:
    """Canon-B or SiLU(conv(x)) of x (B, T, C), one tap after another."""
    kernel = convolution.kernel
    if kernel is None:
        return x
    rows = []
    for t in range(x.shape[1]):
        taps = [kernel[:, -1 - s] * x[:, t - s] for s in range(min(t + 1, kernel.shape[1]))]
        mixed = torch.stack(taps).sum(0)
        rows.append(x[:, t] + mixed if convolution.form == "canon" else silu(mixed))
    return torch.stack(rows, dim=1)


def silu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)
