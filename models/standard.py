"""Softmax attention over all earlier tokens (Vaswani et al. 2017; Yang et al. 2024, eq. 1)."""

import torch
from torch import Tensor
from torch.nn import functional as F

from models.attention import AttentionMixer, fused_attention
from models.mixer import GenerationState
from models.packing import PackedAttention, Packing


class StandardAttention(AttentionMixer):
    """Token i attends to every j <= i. Quadratic in time; its state grows with the sequence."""

    drops_weights = True

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q, k, v (B, H, T, K) to (B, H, T, K), by PyTorch's fused attention."""
        dropout = self.dropout if self.training else 0.0
        return fused_attention(self.turned(q), self.turned(k), v, dropout_p=dropout, is_causal=True)

    def packed_kernel(self, qkv: Tensor, packing: Packing) -> Tensor:
        """As `AttentionMixer.packed_kernel`."""
        return PackedAttention.apply(qkv, packing, True)

    def remember(self, lengths: Tensor, q: Tensor, k: Tensor, v: Tensor) -> dict[str, Tensor]:
        """A cache of keys and values, (B, H, L, K) each."""
        return {"keys": self.cache(self.turned(k)), "values": self.cache(v)}

    def attend_step(
        self, positions: Tensor, state: GenerationState, q: Tensor, k: Tensor, v: Tensor
    ) -> Tensor:
        """Looks at as many cached keys as the longest sequence has."""
        rows = torch.arange(len(q), device=q.device)
        state.tensors["keys"][rows, :, positions] = self.turned(k, positions[:, None])
        state.tensors["values"][rows, :, positions] = v
        keys = state.tensors["keys"][:, :, : state.extent]  # (B, H, E, K)
        values = state.tensors["values"][:, :, : state.extent]
        slots = torch.arange(keys.shape[2], device=q.device)
        visible = (slots <= positions[:, None])[:, None, None]  # (B, 1, 1, E)
        q = self.turned(q, positions[:, None])[:, :, None]  # (B, H, 1, K)
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=visible).squeeze(2)

    def mixing_flops(self, length: int) -> dict[str, int]:
        """Causal: length * (length + 1) / 2 pairs of query and key, each K wide in H heads."""
        pairs = length * (length + 1) // 2
        return {"mixing/scores": 2 * pairs * self.dim, "mixing/values": 2 * pairs * self.dim}

    def state_bytes(self, length: int) -> int:
        """A key and a value of D float32 numbers per token."""
        return 2 * 4 * self.dim * length + self.convolution.state_bytes()
