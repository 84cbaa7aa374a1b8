"""Tensor attention with weights that factorise: third-order mixing in linear time.

A product of feature maps replaces exp, as in linear attention (Katharopoulos et al. 2020), so the
sum over pairs is a product of two prefix sums.
"""

from typing import Any

import torch
from pydantic import PositiveInt
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from models.attention import AttentionMixer
from models.linear import divide, feature_map, query_features
from models.mixer import GenerationState, length_mask, upcast, without_autocast
from models.tensor import query_form, rotated_keys, swapped

# Measured on a CPU (4 heads of 8 and 16, batch 16, forward and backward): at 128 tokens and K = 8
# chunks of 8, 16, 32, 64 take 43, 38, 28, 26 ms, at K = 16 88, 67, 68, 89. Not run on a GPU.
CHUNK_SIZE = 32


class TensorLinearAttention(AttentionMixer):
    """y_i = Σ_{j,k<=i} w_ijk V1_j ∘ V2_k / Σ w_ijk, with w_ijk = Σ_a φ(Q_i)_a φ(K1_j)_a φ(K2_k)_a.

    With S1 = Σ_{j<=i} φ(K1_j) V1_jᵀ, S2 likewise, and z1, z2 the sums of features, this is Σ_a
    φ(Q_i)_a S1[a] ∘ S2[a] over Σ_a φ(Q_i)_a z1_a z2_a: O(T K²) per head. φ and query scaling as in
    `models.linear`. position="rope" rotates φ(K1_j) by i - j and φ(K2_k) by i - k in the numerator
    only. Chunks carry the sums and are recomputed in the backward pass. No attention dropout.
    """

    parts = 5  # Q, K1, K2, V1, V2

    def __init__(self, *sizes: Any, chunk_size: PositiveInt = CHUNK_SIZE, **shared: Any):
        super().__init__(*sizes, **shared)
        self.chunk_size = chunk_size

    def attend(self, q: Tensor, k1: Tensor, k2: Tensor, v1: Tensor, v2: Tensor) -> Tensor:
        table = self.rotary_at(slice(q.shape[2]))
        with without_autocast(q):
            features = query_features(q), feature_map(k1), feature_map(k2)
            total = weight_of(features[0], features[1].cumsum(2), features[2].cumsum(2))
            turned = (rotated_keys(x, table) for x in features[1:])
            inputs = *query_form(features[0], table), *turned, upcast(v1), upcast(v2)
            mixed, sums = [], ()
            for chunk in zip(*(x.split(self.chunk_size, 2) for x in inputs), strict=True):
                y, *sums = checkpoint(
                    mix_chunk, *chunk, *sums, use_reentrant=False, preserve_rng_state=False
                )
                mixed.append(y)
            return divide(torch.cat(mixed, 2), total).to(v1.dtype)

    def state_after(
        self, lengths: Tensor, q: Tensor, k1: Tensor, k2: Tensor, v1: Tensor, v2: Tensor
    ) -> dict[str, Tensor]:
        """S1, S2 (B, H, K, K) and z1, z2 (B, H, K)."""
        read = length_mask(lengths, q.shape[2])[:, None, :, None]
        table, tensors = self.rotary_at(slice(q.shape[2])), {}
        with without_autocast(q):
            for name, k, v in (("1", k1, v1), ("2", k2, v2)):
                features = feature_map(k) * read
                tensors["sums" + name] = rotated_keys(features, table).mT @ upcast(v)
                tensors["normaliser" + name] = features.sum(2)
        return tensors

    def attend_step(
        self, positions: Tensor, state: GenerationState, q: Tensor, k1: Tensor, k2: Tensor,
        v1: Tensor, v2: Tensor,
    ) -> Tensor:  # fmt: skip
        held, table = state.tensors, self.rotary_at(positions[:, None])
        with without_autocast(q):
            for name, k, v in (("1", k1, v1), ("2", k2, v2)):
                features = feature_map(k)
                held["normaliser" + name] += features
                turned = rotated_keys(features, table)
                held["sums" + name].addcmul_(turned[..., None], upcast(v)[..., None, :])
            features = query_features(q)
            form = query_form(features, table)
            mixed = read_sums(*form, held["sums1"], held["sums2"])  # (B, H, K)
            y = divide(mixed, weight_of(features, held["normaliser1"], held["normaliser2"]))
        return y.to(v1.dtype)

    def mixing_flops(self, length: int) -> dict[str, int]:
        """Two K x (K + 1) states per head are updated; a read scales one and multiplies both."""
        state = self.num_heads * self.head_dim * (self.head_dim + 1)
        return {"mixing/state_update": 4 * state * length, "mixing/state_read": 3 * state * length}

    def state_bytes(self, length: int) -> int:
        sums = 2 * 4 * self.num_heads * self.head_dim * (self.head_dim + 1)
        return sums + self.convolution.state_bytes()


def mix_chunk(
    diagonal: Tensor,
    off_diagonal: Tensor,
    k1: Tensor,
    k2: Tensor,
    v1: Tensor,
    v2: Tensor,
    sums1: Tensor | None = None,
    sums2: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The numerator of a chunk, (B, H, C, K), and both sums after it, (B, H, 1, K, K).

    All but the sums before it are (B, H, C, K); diagonal, off_diagonal as in `models.tensor`.
    """
    size = k1.shape[2]
    past = torch.ones(size, size, dtype=k1.dtype, device=k1.device).tril()
    sums = []
    for k, v, before in ((k1, v1, sums1), (k2, v2, sums2)):
        products = (k[..., None] * v[..., None, :]).flatten(-2)  # (B, H, C, K²)
        within = (past @ products).unflatten(-1, (k.shape[-1], -1))  # (B, H, C, K, K)
        sums.append(within if before is None else within + before)
    mixed = read_sums(diagonal, off_diagonal, *sums)
    return mixed, sums[0][:, :, -1:], sums[1][:, :, -1:]


def read_sums(diagonal: Tensor, off_diagonal: Tensor, sums1: Tensor, sums2: Tensor) -> Tensor:
    """Σ_ab M_ab S1[a] ∘ S2[b]: the form (..., K) and sums (..., K, K) to (..., K)."""
    queried = diagonal[..., None] * sums1
    if off_diagonal.shape[-1]:
        queried = queried + off_diagonal[..., None] * swapped(sums1.mT).mT
    return (queried * sums2).sum(-2)


def weight_of(q: Tensor, z1: Tensor, z2: Tensor) -> Tensor:
    """Σ_a q_a z1_a z2_a, (..., K) to (..., 1)."""
    return (q * z1 * z2).sum(-1, keepdim=True)
