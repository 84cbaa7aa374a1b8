"""Softmax attention over all earlier tokens (Vaswani et al. 2017; Yang et al. 2024, eq. 1)."""

import torch
from torch import Tensor
from torch.nn import functional as F

from models.attention import AttentionMixer, fused_attention, overrides
from models.cpu_attention import PackedAttention, runs
from models.mixer import GenerationState
from models.packing import Packing


class StandardAttention(AttentionMixer):
    """Token i attends to every j <= i. Quadratic in time; its state grows with the sequence."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q, k, v (B, H, T, K) to (B, H, T, K), by PyTorch's fused attention."""
        dropout = self.dropout if self.training else 0.0
        return fused_attention(
            self.apply_rotary(q), self.apply_rotary(k), v, dropout_p=dropout, is_causal=True
        )

    def attend_packed(self, qkv: Tensor, packing: Packing) -> Tensor:
        """As `AttentionMixer.attend_packed`, without padding where a kernel does that."""
        changed = overrides(self, StandardAttention, "attend") or self.position == "rope"
        if changed or (self.training and self.dropout) or not runs(qkv, packing):
            return super().attend_packed(qkv, packing)
        return PackedAttention.apply(qkv.float(), packing, True).to(qkv.dtype)

    def prefill(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, GenerationState]:
        """As `Mixer.prefill`; the state is a cache of keys and values, (B, H, L, K) each."""
        q, k, v = self.project(x)  # (B, H, T, K)
        tensors = {"keys": self.cache(self.apply_rotary(k)), "values": self.cache(v)}
        state = GenerationState({**tensors, **self.recent(x, lengths)}, lengths, x.shape[1])
        return self.merge(self.attend(q, k, v)), state

    def step(self, x: Tensor, positions: Tensor, state: GenerationState) -> Tensor:
        """As `Mixer.step`; looks at as many cached keys as the longest sequence has."""
        q, k, v = self.project_step(x, state.tensors)  # (B, H, K)
        state.advance(positions)
        rows = torch.arange(len(x), device=x.device)
        state.tensors["keys"][rows, :, positions] = self.apply_rotary_step(k, positions)
        state.tensors["values"][rows, :, positions] = v
        keys = state.tensors["keys"][:, :, : state.extent]  # (B, H, E, K)
        values = state.tensors["values"][:, :, : state.extent]
        slots = torch.arange(keys.shape[2], device=x.device)
        visible = (slots <= positions[:, None])[:, None, None]  # (B, 1, 1, E)
        q = self.apply_rotary_step(q, positions)[:, :, None]  # (B, H, 1, K)
        y = F.scaled_dot_product_attention(q, keys, values, attn_mask=visible)
        return self.merge_step(y.squeeze(2))

    def mixing_flops(self, length: int) -> dict[str, int]:
        """Causal: length * (length + 1) / 2 pairs of query and key, each K wide in H heads."""
        pairs = length * (length + 1) // 2
        return {"mixing/scores": 2 * pairs * self.dim, "mixing/values": 2 * pairs * self.dim}

    def state_bytes(self, length: int) -> int:
        """A key and a value of D float32 numbers per token."""
        return 2 * 4 * self.dim * length + self.convolution.state_bytes()
