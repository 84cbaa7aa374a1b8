"""Tensor attention: a token attends to pairs of earlier tokens.

Sanford, Hsu and Telgarsky 2023, Definition 7; Alman and Song 2024, Definition 1.1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from common import UserError
from models.attention import AttentionMixer
from models.mixer import GenerationState, check_choice
from models.pairs import PairAttention, attend_last
from models.positions import rotate
from models.precision import widened, without_autocast

SCALES = ("head_dim", "sqrt")
MOST_SCORES = 2**28  # of one query: 1 GiB in float32, several times over in a backward pass


class TensorAttention(AttentionMixer):
    """y_i = Σ_{j,k<=i} p_ijk V1_j ∘ V2_k, where p_i is the softmax over all pairs (j, k) of s_i.

    s_ijk = (1/K) Σ_a Q_ia K1_ja K2_ka, at least in float32; scale="sqrt" divides by √K instead.
    With position="rope" K1_j is turned by i - j and K2_k by i - k, as in RoPE-based tensor
    attention (Definition 3.28 there). Time O(T³ D), memory O(T²) a query (`models.pairs`).
    Attention dropout does not apply. UserError where T² scores cannot be held.
    """

    parts = 5  # Q, K1, K2, V1, V2

    def __init__(
        self,
        dim: int,
        num_heads: int,
        max_len: int,
        dropout: float = 0.0,
        position: str = "none",
        scale: str = "head_dim",
    ):
        super().__init__(dim, num_heads, max_len, dropout, position)
        check_choice("scale", scale, SCALES)
        if max_len**2 > MOST_SCORES:
            raise UserError(
                f"tensor attention: among {max_len:,} tokens a query has {max_len**2:,} scores, "
                f"more than the {MOST_SCORES:,} that can be held; take shorter sequences, or "
                "model=tensor_linear"
            )
        self.scale = 1 / (self.head_dim if scale == "head_dim" else self.head_dim**0.5)

    def attend(self, q: Tensor, k1: Tensor, k2: Tensor, v1: Tensor, v2: Tensor) -> Tensor:
        """q, k1, k2, v1, v2 (B, H, T, K) to (B, H, T, K) of v1's type."""
        table = self.rotary_at(slice(q.shape[2]))
        with without_autocast(q):
            form = query_form(self.scale * widened(q), table)
            keys = turned_keys(k1, table), turned_keys(k2, table)
            y = PairAttention.apply(*form, *keys, widened(v1), widened(v2))
        return y.to(v1.dtype)

    def prefill(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, GenerationState]:
        """As `Mixer.prefill`; the state is a cache of turned keys and values, (B, H, L, K) each."""
        q, k1, k2, v1, v2 = self.project(x)  # (B, H, T, K)
        table = self.rotary_at(slice(x.shape[1]))
        with without_autocast(x):
            keys = turned_keys(k1, table), turned_keys(k2, table)
        state = {}
        for name, part in zip(CACHES, (*keys, widened(v1), widened(v2)), strict=True):
            # Zeros, not empty: a hidden slot enters products with weight 0, and 0 * nan = nan.
            state[name] = part.new_zeros(*part.shape[:2], self.max_len, self.head_dim)
            state[name][:, :, : x.shape[1]] = part
        y = self.merge(self.attend(q, k1, k2, v1, v2))
        return y, GenerationState(state, lengths, x.shape[1])

    def step(self, x: Tensor, positions: Tensor, state: GenerationState) -> Tensor:
        """As `Mixer.step`; looks at as many cached keys as the longest sequence has."""
        q, k1, k2, v1, v2 = self.project_step(x)  # (B, H, K)
        state.advance(positions)
        rows, table = torch.arange(len(x), device=x.device), self.rotary_at(positions[:, None])
        with without_autocast(x):
            keys = turned_keys(k1, table), turned_keys(k2, table)
            for name, part in zip(CACHES, (*keys, widened(v1), widened(v2)), strict=True):
                state.tensors[name][rows, :, positions] = part
            seen = [state.tensors[name][:, :, : state.extent] for name in CACHES]  # (B, H, E, K)
            slots = torch.arange(seen[0].shape[2], device=x.device)
            hidden = slots > positions[:, None]  # (B, E)
            y = attend_last(query_form(self.scale * widened(q), table), seen, hidden)
        return self.merge_step(y.to(v1.dtype))

    def mixing_flops(self, length: int) -> dict[str, int]:
        """T (T + 1) / 2 pairs (i, j), and Σ i² triples (i, j, k).

        Q_i ∘ K1_j for every (i, j), without rope's two terms more; its products with K2 and those
        of the weights with V2 for every triple; V1_j ∘ Σ_k p_ijk V2_k, summed, for every (i, j).
        """
        pairs = length * (length + 1) // 2
        triples = length * (length + 1) * (2 * length + 1) // 6
        return {
            "mixing/queried_keys": pairs * self.dim,
            "mixing/scores": 2 * triples * self.dim,
            "mixing/values": 2 * triples * self.dim,
            "mixing/value_pairs": 2 * pairs * self.dim,
        }

    def state_bytes(self, length: int) -> int:
        """Two keys and two values of D float32 numbers per token."""
        return 4 * 4 * self.dim * length


CACHES = ("keys1", "keys2", "values1", "values2")


def turned_keys(k: Tensor, table: Tensor | None) -> Tensor:
    """K̃_j = R₋ⱼ K_j, at least in float32; k (..., K) and the table of its positions."""
    k = widened(k)
    return k if table is None else rotate(k, table[0], -table[1])


def query_form(q: Tensor, table: Tensor | None) -> tuple[Tensor, Tensor]:
    """The diagonal of each query's matrix M, (..., K), and what stands beside it, (..., K or 0).

    Σ_a q_a x_a y_a = xᵀ diag(q) y, so scores of keys turned by i - j and i - k are those of K̃_j
    and K̃_k under M = Rᵢᵀ diag(q) Rᵢ: blocks [[α, γ], [γ, β]] on its diagonal, γ given twice.
    """
    if table is None:
        return q, q[..., :0]
    cos, sin = table.to(q.dtype)  # (..., K / 2)
    x, y = q[..., 0::2], q[..., 1::2]
    alpha, beta = cos**2 * x + sin**2 * y, sin**2 * x + cos**2 * y
    gamma = cos * sin * (y - x)
    diagonal = torch.stack((alpha, beta), -1).flatten(-2)
    return diagonal, torch.stack((gamma, gamma), -1).flatten(-2)
