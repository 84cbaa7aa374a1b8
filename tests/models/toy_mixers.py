"""Mixers such as a newcomer would write: `forward` alone, everything else inherited."""

import torch
from torch import Tensor, nn

from models.attention import rotary_table, rotate
from models.mixer import Mixer


class CumulativeMean(Mixer):
    """Every token becomes the mean of those up to it."""

    def forward(self, x: Tensor) -> Tensor:
        count = torch.arange(1, x.shape[1] + 1, device=x.device)[:, None]
        return x.cumsum(1) / count


class TensorAttention(Mixer):
    """Attention to pairs (j, k), by the definition of tensor attention.

    Causal, as in Definitions 3.28 and 3.31 of "RoPE-based tensor attention":
    A[i, (j, k)] = exp(Σ_a Q[i, a] K1[j, a] K2[k, a] / K), j, k <= i, applied to V1[j] ⊙ V2[k];
    with position="rope" K1[j] is turned by i - j and K2[k] by i - k, the mixer's own business.
    """

    def __init__(self, dim, num_heads, max_len, dropout=0.0, position="none"):
        super().__init__(dim, num_heads, max_len, dropout, position)
        self.projections = nn.Linear(dim, 5 * dim)
        self.out = nn.Linear(dim, dim)
        table = rotary_table(max_len, self.head_dim)
        self.register_buffer("table", table, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        split = self.projections(x).unflatten(-1, (5, self.num_heads, -1))  # (B, T, 5, H, K)
        q, k1, k2, v1, v2 = split.permute(2, 0, 3, 1, 4)  # (B, H, T, K) each
        past = torch.ones(x.shape[1], x.shape[1], device=x.device).tril().bool()
        k1, k2 = self.relative(k1, past), self.relative(k2, past)  # (B, H, i, j, K)
        scores = torch.einsum("bhia,bhija,bhika->bhijk", q, k1, k2) / self.head_dim
        pairs = past[:, :, None] & past[:, None, :]  # (i, j, k)
        weights = scores.masked_fill(~pairs, -torch.inf).flatten(3).softmax(-1)
        values = torch.einsum("bhija,bhjka->bhia", *self.pair(weights, v1, v2))
        return self.out(values.transpose(1, 2).flatten(2))

    def pair(self, weights, v1, v2):
        """Weights (B, H, i, jk) as applied to V1[j], and the products V1[j] ⊙ V2[k]."""
        length = v1.shape[2]
        applied = torch.einsum("bhijk,bhka->bhija", weights.unflatten(3, (length, length)), v2)
        return applied, v1[:, :, :, None]

    def relative(self, keys, past):
        """Keys (B, H, T, K) for every query i: turned by i - j under rope; (B, H, i, j, K)."""
        length = keys.shape[2]
        keys = keys[:, :, None].expand(-1, -1, length, -1, -1)
        if self.position != "rope":
            return keys
        steps = torch.arange(length, device=keys.device)
        distance = (steps[:, None] - steps).clamp(min=0) * past
        return rotate(keys, self.table[:, distance])
