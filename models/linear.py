"""Linear attention (Katharopoulos et al. 2020): softmax replaced by a product of feature maps."""

from typing import Any, Literal

import torch
from pydantic import PositiveInt
from torch import Tensor
from torch.nn import functional as F

from models.attention import AttentionMixer
from models.mixer import GenerationState, length_mask, upcast, without_autocast
from models.packing import PackedAttention, Packing

# Measured on a CPU at commit 22bf7fbc715f, 4 heads of 16, batch 16, forward and backward: dense
# takes 4.2 ms against 4.7 at 48 tokens, 5.6 against 5.3 at 64, 55 against 19 at 221. Chunks of 16,
# 32 and 64 differ by less than half. For wider heads, chunks are as long as a head is wide.
CHUNK_SIZE = 32
CHUNKED_FROM = 64


def feature_map(x: Tensor) -> Tensor:
    """φ(x) = elu(x) + 1 = exp(min(x, 0)) + max(x, 0), at least in float32. The sum elu(x) + 1 would
    be exactly 0 below about x = -17 in float32 and x = -6 in bf16."""
    x = upcast(x)
    return x.clamp(max=0).exp() + x.relu()


def query_features(q: Tensor) -> Tensor:
    """φ(q) scaled per query so that its largest channel is at least 1.

    The factor exp(-min(max q, 0)) cancels in the quotient; without it, a query below -103 has no
    nonzero feature in float32. No gradient passes through it: the quotient does not depend on it.
    """
    q = upcast(q)
    negative = q.clamp(max=0)
    return (negative - negative.detach().amax(-1, keepdim=True)).exp() + q.relu()


class LinearAttention(AttentionMixer):
    """y_i = Σ_{j<=i} (φ(q_i)·φ(k_j)) v_j / Σ_{j<=i} φ(q_i)·φ(k_j) (eq. 9 to 12).

    Sums are at least float32, also under autocast. "dense" builds the T x T matrix; "chunked" does
    so within chunks of chunk_size tokens and carries the sums between them, in O(T) time and
    memory; "auto" chooses by max_len (CHUNKED_FROM). position="rope" rotates the numerator only
    (RoFormer, eq. 19), so the denominator stays positive. There are no attention weights to drop.
    """

    has_kernel = True

    def __init__(
        self,
        *sizes: Any,
        chunk_size: PositiveInt | None = None,
        implementation: Literal["auto", "dense", "chunked"] = "auto",
        **shared: Any,
    ):
        super().__init__(*sizes, **shared)
        if chunk_size is None:
            chunk_size = max(CHUNK_SIZE, self.head_dim)  # a K x K sum is no larger than a chunk
        if implementation == "auto":
            implementation = "chunked" if self.max_len >= CHUNKED_FROM else "dense"
        self.chunk_size, self.implementation = chunk_size, implementation

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        size = self.chunk_size if self.implementation == "chunked" else self.max_len
        with without_autocast(q):
            features_q, features_k = query_features(q), feature_map(k)
            ones = torch.ones_like(features_q[..., :1])  # (B, H, T, 1)
            if self.position == "rope":
                turned = self.apply_rotary(features_q), self.apply_rotary(features_k)
                numerator = chunked(*turned, upcast(v), size)
                denominator = chunked(features_q, features_k, ones, size)
            else:  # the denominator is one more column of values
                values = torch.cat((upcast(v), ones), -1)
                sums = chunked(features_q, features_k, values, size)
                numerator, denominator = sums[..., :-1], sums[..., -1:]
            return divide(numerator, denominator).to(v.dtype)

    def packed_kernel(self, qkv: Tensor, packing: Packing) -> Tensor:
        return PackedAttention.apply(qkv, packing, False)

    def state_after(self, lengths: Tensor, q: Tensor, k: Tensor, v: Tensor) -> dict[str, Tensor]:
        """Σ φ(k) v^T (B, H, K, K) and Σ φ(k) (B, H, K)."""
        with without_autocast(k):
            features = feature_map(k) * length_mask(lengths, k.shape[2])[:, None, :, None]
            sums = self.apply_rotary(features).mT @ upcast(v)  # (B, H, K, K)
        return {"sums": sums, "normaliser": features.sum(2)}

    def attend_step(
        self, positions: Tensor, state: GenerationState, q: Tensor, k: Tensor, v: Tensor
    ) -> Tensor:
        sums, normaliser = state.tensors["sums"], state.tensors["normaliser"]
        with without_autocast(q):
            features_q, features_k = query_features(q), feature_map(k)
            turned_q, turned_k = (
                self.apply_rotary(x, positions[:, None]) for x in (features_q, features_k)
            )
            normaliser += features_k
            sums.addcmul_(turned_k[..., None], upcast(v)[..., None, :])  # (B, H, K, K)
            numerator = (turned_q[..., None, :] @ sums).squeeze(-2)  # (B, H, K)
            y = divide(numerator, (features_q * normaliser).sum(-1, keepdim=True))
        return y.to(v.dtype)

    def mixing_flops(self, length: int) -> dict[str, int]:
        """A K x (K + 1) state per head is updated and read; column K + 1 is the denominator."""
        state = self.num_heads * self.head_dim * (self.head_dim + 1)
        return {"mixing/state_update": 2 * state * length, "mixing/state_read": 2 * state * length}

    def state_bytes(self, length: int) -> int:
        sums = 4 * self.num_heads * self.head_dim * (self.head_dim + 1)
        return sums + self.convolution.state_bytes()


def divide(numerator: Tensor, denominator: Tensor) -> Tensor:
    """The quotient, guarded by the smallest normal number."""
    return numerator / denominator.clamp(min=torch.finfo(denominator.dtype).tiny)


def chunked(q: Tensor, k: Tensor, v: Tensor, size: int) -> Tensor:
    """Σ_{j<=i} (q_i·k_j) v_j in O(T), q, k (B, H, T, K), v (B, H, T, W): matrices within chunks,
    prefix sums of k v^T between them."""
    length = q.shape[2]
    if length <= size:
        return (q @ k.mT).tril() @ v
    q, k, v = split(q, size), split(k, size), split(v, size)  # (B, H, N, C, K or W)
    within = (q @ k.mT).tril() @ v  # (B, H, N, C, W)
    sums = (k.mT @ v)[:, :, :-1].cumsum(2)  # (B, H, N - 1, K, W)
    before = q @ F.pad(sums, (0, 0, 0, 0, 1, 0))  # (B, H, N, C, W); nothing before chunk 0
    return (within + before).flatten(2, 3)[:, :, :length]


def split(x: Tensor, size: int) -> Tensor:
    """(B, H, T, ...) to chunks (B, H, N, size, ...), zero-padded."""
    missing = -x.shape[2] % size
    if missing:
        x = F.pad(x, (0, 0) * (x.dim() - 3) + (0, missing))
    return x.unflatten(2, (-1, size))
