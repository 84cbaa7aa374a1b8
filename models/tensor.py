"""Tensor attention: a token attends to pairs of earlier tokens (Sanford, Hsu and Telgarsky 2023,
Definition 7; Alman and Song 2024, Definition 1.1).

Queries are processed in blocks; the backward pass recomputes the weights. A query's scores are s_jk
= K1_jᵀ M K2_k with M symmetric: a diagonal, and optionally one off-diagonal entry per pair of
channels (2a, 2a + 1), passed as a last axis of K numbers, or of 0 for none. Shapes: G batch and
heads, R queries of a block, N keys they see.
"""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from models.attention import AttentionMixer, rotate
from models.mixer import GenerationState, upcast, without_autocast

# Scores held at once (and as many weights), on a CPU and on other devices. 1 MiB of float32 fits in
# a core's cache; a GPU needs more work per call.
SCORES_CPU, SCORES_ELSEWHERE = 2**18, 2**26
SMALLEST_BLOCK = 16  # queries, if that many fit


class TensorAttention(AttentionMixer):
    """y_i = Σ_{j,k<=i} p_ijk V1_j ∘ V2_k, with p_i the softmax of s_i over all pairs (j, k).

    s_ijk = (1/K) Σ_a Q_ia K1_ja K2_ka, at least in float32; scale="sqrt" divides by √K.
    position="rope" rotates K1_j by i - j and K2_k by i - k, as in RoPE tensor attention (Li et al.,
    Theoretical Constraints on the Expressive Power of RoPE-based Tensor Attention Transformers,
    Definition 3.28). Time O(T³ D), memory O(T²) per query; no dropout.
    """

    parts = 5  # Q, K1, K2, V1, V2

    def __init__(self, *sizes: Any, scale: Literal["head_dim", "sqrt"] = "head_dim", **shared: Any):
        super().__init__(*sizes, **shared)
        self.scale = 1 / (self.head_dim if scale == "head_dim" else self.head_dim**0.5)

    def attend(self, q: Tensor, k1: Tensor, k2: Tensor, v1: Tensor, v2: Tensor) -> Tensor:
        """q, k1, k2, v1, v2 (B, H, T, K) to (B, H, T, K)."""
        table = self.rotary_at(slice(q.shape[2]))
        with without_autocast(q):
            form = query_form(self.scale * upcast(q), table)
            seen = list(self.held(table, k1, k2, v1, v2).values())
            future = torch.full((1, q.shape[2], q.shape[2]), -torch.inf, device=q.device).triu(1)
            y = attend_pairs(form, seen, future)
        return y.to(v1.dtype)

    def state_after(self, lengths: Tensor, q: Tensor, *parts: Tensor) -> dict[str, Tensor]:
        held = self.held(self.rotary_at(slice(q.shape[2])), *parts)
        missing = self.max_len - q.shape[2]
        return {name: F.pad(part, (0, 0, 0, missing)) for name, part in held.items()}

    def held(
        self, table: Tensor | None, k1: Tensor, k2: Tensor, v1: Tensor, v2: Tensor
    ) -> dict[str, Tensor]:
        """The state of tokens with rotary positions `table`."""
        return {
            "keys1": rotated_keys(k1, table),
            "keys2": rotated_keys(k2, table),
            "values1": upcast(v1),
            "values2": upcast(v2),
        }

    def attend_step(
        self, positions: Tensor, state: GenerationState, q: Tensor, *parts: Tensor
    ) -> Tensor:
        rows, table = torch.arange(len(q), device=q.device), self.rotary_at(positions[:, None])
        with without_autocast(q):
            held = self.held(table, *parts)
            for name, part in held.items():
                state.tensors[name][rows, :, positions] = part
            seen = [state.tensors[name][:, :, : state.extent] for name in held]  # (B, H, E, K)
            slots = torch.arange(seen[0].shape[2], device=q.device)
            masked = torch.where(slots > positions[:, None, None], -torch.inf, 0.0)  # (B, 1, E)
            form = [x[:, :, None] for x in query_form(self.scale * upcast(q), table)]
            y = attend_pairs(form, seen, masked).squeeze(2)
        return y.to(parts[-1].dtype)

    def mixing_flops(self, length: int) -> dict[str, int]:
        """Q_i ∘ K1_j for each pair (i, j), products with K2 and V2 for each of Σ i² triples, and
        V1_j ∘ Σ_k p_ijk V2_k, summed, for each pair. Omits rope's two extra terms."""
        pairs = length * (length + 1) // 2
        triples = length * (length + 1) * (2 * length + 1) // 6
        return {
            "mixing/queried_keys": pairs * self.dim,
            "mixing/scores": 2 * triples * self.dim,
            "mixing/values": 2 * triples * self.dim,
            "mixing/value_pairs": 2 * pairs * self.dim,
        }

    def state_bytes(self, length: int) -> int:
        return 4 * 4 * self.dim * length + self.convolution.state_bytes()


def rotated_keys(k: Tensor, table: Tensor | None) -> Tensor:
    """K̃_j = R₋ⱼ K_j, at least in float32; k (..., K), `table` of its positions."""
    k = upcast(k)
    return k if table is None else rotate(k, torch.stack((table[0], -table[1])))


def query_form(q: Tensor, table: Tensor | None) -> tuple[Tensor, Tensor]:
    """Diagonal (..., K) and off-diagonal (..., K or 0) of each query's matrix M.

    Σ_a q_a x_a y_a = xᵀ diag(q) y, so scores of keys rotated by i - j and i - k are those of K̃_j
    and K̃_k under M = Rᵢᵀ diag(q) Rᵢ, with blocks [[α, γ], [γ, β]] on its diagonal.
    """
    if table is None:
        return q, q[..., :0]
    cos, sin = table.to(q.dtype)  # (..., K / 2)
    x, y = q[..., 0::2], q[..., 1::2]
    alpha, beta = cos**2 * x + sin**2 * y, sin**2 * x + cos**2 * y
    gamma = cos * sin * (y - x)
    diagonal = torch.stack((alpha, beta), -1).flatten(-2)
    return diagonal, torch.stack((gamma, gamma), -1).flatten(-2)


def attend_pairs(form: Sequence[Tensor], seen: Sequence[Tensor], masked: Tensor) -> Tensor:
    """The last R of N tokens attend to all pairs of tokens; masked (B or 1, R, N) is -∞ where a
    query does not see a token, else 0.

    form: diagonal and off_diagonal (B, H, R, K); seen: k1, k2, v1, v2 (B, H, N, K). Returns (B, H,
    R, K). Blocks of heads and queries are recomputed in the backward pass.
    """
    (batch, heads, queries, _), tokens = form[0].shape, seen[0].shape[2]
    most = SCORES_CPU if masked.device.type == "cpu" else SCORES_ELSEWHERE
    form, seen = [x.flatten(0, 1) for x in form], [x.flatten(0, 1) for x in seen]  # (G, ·, K)
    if len(masked) > 1:
        masked = masked.repeat_interleave(heads, 0)  # (G, R, N)
    before, start, rows = tokens - queries, 0, []
    while start < queries:
        # A block also computes scores that its first queries do not see, so it is at most half as
        # long as what precedes it.
        stop = min(queries, start + max(SMALLEST_BLOCK, (before + start) // 2))
        stop = min(stop, start + max(1, most // (before + stop) ** 2))
        own, keys = slice(start, stop), slice(before + stop)
        step = max(1, most // ((stop - start) * (before + stop) ** 2))
        parts = [
            checkpoint(
                mix_block, *(x[g : g + step, own] for x in form),
                *(x[g : g + step, keys] for x in seen), masked[g % len(masked) :][:step, own, keys],
                use_reentrant=False, preserve_rng_state=False,
            )
            for g in range(0, batch * heads, step)
        ]  # fmt: skip
        rows.append(torch.cat(parts))
        start = stop
    return torch.cat(rows, 1).unflatten(0, (batch, heads))


def mix_block(
    diagonal: Tensor, off_diagonal: Tensor, k1: Tensor, k2: Tensor, v1: Tensor, v2: Tensor,
    masked: Tensor,
) -> Tensor:  # fmt: skip
    """Queries (G, R, K) and keys (G, N, K), masked (G, R, N), to (G, R, K)."""
    queried = diagonal[:, :, None] * k1[:, None]  # K1 M of every query, (G, R, N, K)
    if off_diagonal.shape[-1]:
        queried = queried + off_diagonal[:, :, None] * swapped(k1)[:, None]
    scores = (queried.flatten(1, 2) @ k2.mT).unflatten(1, queried.shape[1:3])  # (G, R, N, N)
    scores = scores.add_(masked[..., None]).add_(masked[:, :, None])
    weights = scores.flatten(2).softmax(-1).view_as(scores)
    mixed = (weights.flatten(1, 2) @ v2).unflatten(1, queried.shape[1:3])  # (G, R, N, K)
    return (mixed * v1[:, None]).sum(2)


def swapped(x: Tensor) -> Tensor:
    """x (..., K) with channels 2a and 2a + 1 exchanged."""
    return x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
