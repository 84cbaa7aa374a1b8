"""Linear attention by a Taylor series of softmax: the global half of Based (Arora et al. 2024)."""

from typing import Any

import torch
from pydantic import PositiveInt
from torch import Tensor, nn
from torch.nn import functional as F

from models.attention import AttentionMixer, Convolution, ShortConvolution, Width
from models.mixer import (
    GenerationState,
    Mixer,
    Role,
    length_mask,
    upcast,
    without_autocast,
    xavier_uniform,
)

# Up to this length, weights are computed without features. Forward and backward, one CPU thread:
# at 221 tokens, 4 heads of 32, batch 64, chunks of 64 take 0.52 s and of 128 0.40 s; at 16,384
# tokens, 4 heads of 16, batch 1, chunks of 64, 128 and 256 take 0.74, 0.57 and 0.69 s.
CHUNK_SIZE = 128


class TaylorAttention(AttentionMixer):
    """y_i = Σ_{j<=i} w_ij v_j / Σ_{j<=i} w_ij with w_ij = 1 + s + s²/2, s = q_i·k_j / √d.

    The second-order series of exp(s) (arXiv 2402.18668, section 4), at least 1/2. In features, w_ij
    = φ(q_i)·φ(k_j) with φ(x) = (1, x, x ⊗ x / √2) of x / d^(1/4), F = 1 + d + d² numbers. Queries
    and keys are d = feature_dim wide (16 there), values K = D / H. Chunks of CHUNK_SIZE tokens
    compute w from s; features carry sums between them. There is no attention dropout.
    """

    def __init__(
        self,
        *sizes: Any,
        feature_dim: PositiveInt = 16,
        convolution: Convolution = "none",
        convolution_width: Width = 4,
        **shared: Any,
    ):
        Mixer.__init__(self, *sizes, **shared)  # it has its own projections
        self.feature_dim, self.num_features = feature_dim, 1 + feature_dim + feature_dim**2
        self.width = self.num_heads * feature_dim  # of all queries, and of all keys
        self.qk, self.v = nn.Linear(self.dim, 2 * self.width), nn.Linear(self.dim, self.dim)
        self.out = nn.Linear(self.dim, self.dim)
        for layer, parts in ((self.qk, 2), (self.v, 1), (self.out, 1)):
            xavier_uniform(layer, parts)
        channels = 2 * self.width + self.dim
        self.convolution = ShortConvolution(channels, convolution, convolution_width)
        self.register_rotary(feature_dim, "feature_dim")

    def parameter_roles(self) -> dict[str, Role]:
        return {"qk.weight": Role("hidden", parts=2)}

    def qkv(self, x: Tensor) -> Tensor:
        return torch.cat((self.qk(x), self.v(x)), dim=-1)

    def split_heads(self, qkv: Tensor) -> tuple[Tensor, ...]:
        """(..., H, d), (..., H, d) and (..., H, K)."""
        parts = qkv.split((self.width, self.width, self.dim), dim=-1)
        return tuple(part.unflatten(-1, (self.num_heads, -1)) for part in parts)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k = self.scaled(self.apply_rotary(q)), self.scaled(self.apply_rotary(k))
        with without_autocast(q):
            chunks = zip(*(x.split(CHUNK_SIZE, 2) for x in (q, k, with_ones(v))), strict=True)
            sums, before, state = [], None, q.new_zeros(())  # state: (B, H, F, K + 1)
            for q_chunk, k_chunk, v_chunk in chunks:
                scores = q_chunk @ k_chunk.mT  # (B, H, C, C)
                weights = 1 + scores + scores.square() / 2
                y = weights.tril() @ v_chunk  # (B, H, C, K + 1)
                if before is not None:
                    state = state + self.feature_map(before[0]).mT @ before[1]
                    y = y + self.feature_map(q_chunk) @ state
                sums.append(y)
                before = k_chunk, v_chunk
            return quotient(torch.cat(sums, dim=2)).to(v.dtype)

    def scaled(self, x: Tensor) -> Tensor:
        """x / d^(1/4), at least in float32."""
        return upcast(x) / self.feature_dim**0.25

    def feature_map(self, x: Tensor) -> Tensor:
        """φ of `scaled` x (..., d): (..., F)."""
        pairs = (x[..., :, None] * x[..., None, :]).flatten(-2) / 2**0.5
        return torch.cat((torch.ones_like(x[..., :1]), x, pairs), dim=-1)

    def state_after(self, lengths: Tensor, q: Tensor, k: Tensor, v: Tensor) -> dict[str, Tensor]:
        """Σ φ(k) [v, 1]^T, (B, H, F, K + 1)."""
        read = length_mask(lengths, k.shape[2])[:, None, :, None]  # (B, 1, T, 1)
        with without_autocast(k):
            features = self.feature_map(self.scaled(self.apply_rotary(k)))
            return {"sums": (features * read).mT @ with_ones(v)}

    def attend_step(
        self, positions: Tensor, state: GenerationState, q: Tensor, k: Tensor, v: Tensor
    ) -> Tensor:
        q, k = (self.scaled(self.apply_rotary(x, positions[:, None])) for x in (q, k))  # (B, H, d)
        sums = state.tensors["sums"]
        with without_autocast(q):
            sums.addcmul_(self.feature_map(k)[..., None], with_ones(v)[..., None, :])
            y = quotient((self.feature_map(q)[..., None, :] @ sums).squeeze(-2))  # (B, H, K)
        return y.to(v.dtype)

    def mixing_flops(self, length: int) -> dict[str, int]:
        """An F x (K + 1) state per head is updated and read."""
        state = self.num_heads * self.num_features * (self.head_dim + 1) * length
        return {"mixing/state_update": 2 * state, "mixing/state_read": 2 * state}

    def state_bytes(self, length: int) -> int:
        sums = 4 * self.num_heads * self.num_features * (self.head_dim + 1)
        return sums + self.convolution.state_bytes()


def with_ones(v: Tensor) -> Tensor:
    """(..., W) to (..., W + 1): the last column sums the weights."""
    return F.pad(upcast(v), (0, 1), value=1.0)


def quotient(sums: Tensor) -> Tensor:
    """(..., W + 1) to (..., W): sums over weights, which are at least 1/2."""
    return sums[..., :-1] / sums[..., -1:]
