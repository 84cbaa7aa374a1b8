"""Tensor attention: a token attends to pairs of earlier tokens (Sanford, Hsu and Telgarsky 2023,
Definition 7; Alman and Song 2024, Definition 1.1).

Queries are processed in blocks; the backward pass recomputes the weights. A query's scores are s_jk
= K1_jᵀ M K2_k with M symmetric: a diagonal, and optionally one off-diagonal entry per pair of
channels (2a, 2a + 1), passed as a last axis of K numbers, or of 0 for none. Shapes: G batch and
heads, R queries of a block, N keys they see.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from models.attention import AttentionMixer, rotate
from models.mixer import GenerationState, upcast, without_autocast

# Scores held at once, on a CPU and on other devices. 1 MiB of float32 fits in a core's cache; a GPU
# needs more work per call.
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
            y = PairAttention.apply(*form, *self.held(table, k1, k2, v1, v2).values())
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
            hidden = slots > positions[:, None]  # (B, E)
            y = attend_last(query_form(self.scale * upcast(q), table), seen, hidden)
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


class PairAttention(torch.autograd.Function):
    """Causal attention to pairs: diagonal, off_diagonal, k1, k2, v1, v2 to y, all (B, H, T, K).
    Keeps y and log Σ exp s, nothing of size T²."""

    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> Tensor:
        diagonal, off_diagonal, k1, k2, v1, v2 = (x.flatten(0, 1) for x in inputs)  # (G, T, K)
        y, lse = torch.empty_like(diagonal), diagonal.new_empty(diagonal.shape[:2])
        for g, start, stop in _blocks(diagonal):
            seen, own = (g, slice(stop)), (g, slice(start, stop))
            queried = _queried(diagonal[own], off_diagonal[own], k1[seen])  # (G, R, N, K)
            scores = _scores(queried, k2[seen])  # (G, R, N, N)
            _mask(scores, _future(stop - start, diagonal.device))
            y[own], lse[own] = _mixed(scores, v1[seen], v2[seen])
        ctx.save_for_backward(diagonal, off_diagonal, k1, k2, v1, v2, y, lse)
        return y.view_as(inputs[0])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        diagonal, off_diagonal, k1, k2, v1, v2, y, lse = ctx.saved_tensors  # (G, T, K), lse (G, T)
        g_y = gradient.reshape(y.shape)
        delta = (g_y * y).sum(-1)  # (G, T)
        gradients = [torch.zeros_like(x) for x in ctx.saved_tensors[:6]]
        g_diagonal, g_off_diagonal, g_k1, g_k2, g_v1, g_v2 = gradients
        for g, start, stop in _blocks(y):
            seen, own = (g, slice(stop)), (g, slice(start, stop))
            queried = _queried(diagonal[own], off_diagonal[own], k1[seen])  # (G, R, N, K)
            weights = _scores(queried, k2[seen]).sub_(lse[own][..., None, None]).exp_()
            _mask(weights, _future(stop - start, y.device), 0.0)
            flat = weights.flatten(1, 2)  # (G, RN, N)
            g_u = g_y[own][:, :, None] * v1[seen][:, None]  # (G, R, N, K)
            g_v2[seen] += flat.mT @ g_u.flatten(1, 2)
            g_v1[seen] += _summed(g_y[own], (flat @ v2[seen]).view(queried.shape))
            g_scores = (g_u.flatten(1, 2) @ v2[seen].mT).view(weights.shape)
            g_scores.sub_(delta[own][..., None, None]).mul_(weights)
            g_scores = g_scores.flatten(1, 2)  # (G, RN, N)
            g_k2[seen] += g_scores.mT @ queried.flatten(1, 2)
            g_queried = (g_scores @ k2[seen]).view(queried.shape)
            g_diagonal[own] = (g_queried * k1[seen][:, None]).sum(2)
            g_k1[seen] += _summed(diagonal[own], g_queried)
            if off_diagonal.shape[-1]:
                g_off_diagonal[own] = (g_queried * swapped(k1[seen])[:, None]).sum(2)
                g_k1[seen] += swapped(_summed(off_diagonal[own], g_queried))
        return tuple(x.unflatten(0, gradient.shape[:2]) for x in gradients)


def attend_last(form: tuple[Tensor, Tensor], seen: Sequence[Tensor], hidden: Tensor) -> Tensor:
    """One query per row attends to all pairs of N keys not hidden, (B, N). form: diagonal and
    off_diagonal (B, H, K); seen: k1, k2, v1, v2 (B, H, N, K). Returns (B, H, K)."""
    batch, heads, length, width = seen[0].shape
    diagonal, off_diagonal = (x.flatten(0, 1)[:, None] for x in form)  # (G, 1, K)
    k1, k2, v1, v2 = (x.flatten(0, 1) for x in seen)  # (G, N, K)
    hidden = hidden.repeat_interleave(heads, 0)[:, None]  # (G, 1, N)
    y = torch.empty_like(diagonal)
    for some in _groups(batch * heads, length, _score_budget(y)):
        scores = _scores(_queried(diagonal[some], off_diagonal[some], k1[some]), k2[some])
        _mask(scores, hidden[some])
        y[some] = _mixed(scores, v1[some], v2[some])[0]
    return y.view(batch, heads, width)


def _score_budget(x: Tensor) -> int:
    return SCORES_CPU if x.device.type == "cpu" else SCORES_ELSEWHERE


def _groups(groups: int, length: int, most: int) -> Iterator[slice]:
    some = max(1, most // length**2)
    return (slice(first, min(first + some, groups)) for first in range(0, groups, some))


def _blocks(x: Tensor) -> Iterator[tuple[slice, int, int]]:
    """Yield blocks of x (G, T, K): groups, first query, end. A block also computes scores that
    its first queries do not see, so it is at most half as long as what precedes it."""
    length = x.shape[1]
    for some in _groups(x.shape[0], length, _score_budget(x)):
        room = _score_budget(x) // (some.stop - some.start)
        start = 0
        while start < length:
            stop = min(length, start + max(SMALLEST_BLOCK, start // 2))
            while stop > start + 1 and (stop - start) * stop**2 > room:
                stop -= 1
            yield some, start, stop
            start = stop


def _queried(diagonal: Tensor, off_diagonal: Tensor, k1: Tensor) -> Tensor:
    """K1 M of every query: diagonal (G, R, K), k1 (G, N, K) to (G, R, N, K)."""
    queried = diagonal[:, :, None] * k1[:, None]
    if off_diagonal.shape[-1]:
        queried.addcmul_(off_diagonal[:, :, None], swapped(k1)[:, None])
    return queried


def swapped(x: Tensor) -> Tensor:
    return x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)


def _scores(queried: Tensor, k2: Tensor) -> Tensor:
    return (queried.flatten(1, 2) @ k2.mT).unflatten(1, queried.shape[1:3])


def _future(queries: int, device: torch.device) -> Tensor:
    """(1, R, R - 1): which of a block's last R - 1 keys each query must not see."""
    return torch.ones(queries, queries, dtype=torch.bool, device=device).triu(1)[None, :, 1:]


def _mask(scores: Tensor, hidden: Tensor, value: float = -torch.inf) -> None:
    """Fill scores (G, R, N, N) where a key is hidden; hidden (., R, n) covers the last n."""
    count = hidden.shape[-1]
    if count:
        scores[..., -count:].masked_fill_(hidden[:, :, None], value)
        scores[..., -count:, :].masked_fill_(hidden[..., None], value)


def _mixed(scores: Tensor, v1: Tensor, v2: Tensor) -> tuple[Tensor, Tensor]:
    """Scores (G, R, N, N), overwritten, and values (G, N, K) to y (G, R, K) and lse (G, R)."""
    top = scores.amax((-1, -2), keepdim=True)
    weights = scores.sub_(top).exp_()
    total = weights.sum((-1, -2))  # (G, R)
    u = (weights.flatten(1, 2) @ v2).unflatten(1, scores.shape[1:3])  # (G, R, N, K)
    y = (u * v1[:, None]).sum(2) / total[..., None]
    return y, total.log() + top.squeeze((-1, -2))


def _summed(x: Tensor, y: Tensor) -> Tensor:
    return (x[:, :, None] * y).sum(1)
