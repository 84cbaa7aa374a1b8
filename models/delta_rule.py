"""The gated delta rule with several writes a token, as a recurrence step and in chunks.

A state S (K x V) maps keys to values. Token t scales it by α_t and corrects it n times:

    S <- α_t S,   then for j = 1 ... n:   S <- S + β_tj k_tj (v_tj - S^T k_tj)^T,   y_t = S^T q_t

n = 1, α = 1: DeltaNet (Yang et al. 2024, arXiv 2406.06484, eq. 4); n = 1: Gated DeltaNet (Yang,
Kautz and Hatamizadeh 2025, eq. 10); n > 1: (Gated) DeltaProduct (Siems et al. 2025, eq. 3).
Shapes: q (B, H, T, K); k, v (B, H, T, n, K or V); β (B, H, T, n); log α (B, H, T) or None for 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from models.chunks import ChunkDecays, split

LEAST_NORM = 1e-12  # added, squared, to the squared norm of a key or query


def delta_rule_step(
    state: Tensor, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_decay: Tensor | None
) -> Tensor:
    """One token: updates `state` (B, H, K, V) in place and returns y (B, H, V).

    The others are as above, without T.
    """
    if log_decay is not None:
        state *= log_decay.exp()[..., None, None]
    for key, value, strength in zip(k.unbind(2), v.unbind(2), beta.unbind(2), strict=True):
        known = (key[..., None, :] @ state).squeeze(-2)  # (B, H, V)
        correction = strength[..., None] * (value - known)
        state.addcmul_(key[..., None], correction[..., None, :])
    return (q[..., None, :] @ state).squeeze(-2)


def delta_rule(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_decay: Tensor | None, chunk_size: int
) -> tuple[Tensor, Tensor]:
    """All tokens, from an empty state, in O(T): y (B, H, T, V) and the last state (B, H, K, V).

    In a chunk of C tokens that starts from S_0, what leaves the chunk of write i is a_i k_i u_i^T
    with u_i = β_i (v_i - a_i S_0^T k_i - Σ_{j<i} a_ij (k_i·k_j) u_j) and decays a in between
    (`ChunkDecays`). So u = U - W S_0, where U and W solve a unit triangular system for β v and
    β a k: the WY form of Yang et al. (2024), section 3.2. Everything but handing S from chunk to
    chunk is done for all chunks at once. The system is solved by substitution: its inverse as a
    product of powers of the nilpotent part takes differences of numbers that grow as 3^C where keys
    repeat.
    """
    batch, heads, length, writes, width = k.shape
    size = min(chunk_size, length)
    q, k, v = chunks(q, size), chunks(k, size).flatten(1, 2), chunks(v, size).flatten(1, 2)
    beta = chunks(beta, size).reshape(len(k), -1, 1)  # (M, Cn, 1), M = B H N
    leaving, reading = k, k * beta  # (M, Cn, K) each
    overlaps, scores = reading @ k.mT, q @ k.mT  # (M, Cn, Cn), (M, C, Cn)
    kept = torch.eye(width, dtype=k.dtype, device=k.device)
    if log_decay is not None:
        decay = ChunkDecays(chunks(log_decay, size), writes)
        overlaps, scores = overlaps * decay.to_writes, scores * decay.to_queries
        q, reading = q * decay.queries_from_start, reading * decay.writes_from_start
        leaving, kept = k * decay.to_end, kept * decay.whole
    solved = torch.linalg.solve_triangular(
        overlaps, torch.cat((v * beta, reading), -1), upper=False, unitriangular=True
    )
    u, w = solved.split([v.shape[-1], width], -1)  # (M, Cn, V), (M, Cn, K)
    factors = (kept - leaving.mT @ w).unflatten(0, (batch * heads, -1))  # (B H, N, K, K)
    addends = (leaving.mT @ u).unflatten(0, (batch * heads, -1))  # (B H, N, K, V)
    states, last = scan(factors, addends)
    seen = scores * visible(size, writes, scores)
    y = q @ states + seen @ torch.baddbmm(u, w, states, alpha=-1)  # (M, C, V)
    y = y.reshape(batch, heads, -1, v.shape[-1])[:, :, :length]
    return y, last.unflatten(0, (batch, heads))


def chunks(x: Tensor, size: int) -> Tensor:
    """(B, H, T, ...) to (M, size, ...), M = B H N; the zeros at the end write nothing."""
    return split(x, size).flatten(0, 2)


def visible(size: int, writes: int, like: Tensor) -> Tensor:
    """(C, Cn): 1 where the query of a token sees a write, 0 where the write is of a later token."""
    ones = torch.ones(size, size, dtype=like.dtype, device=like.device)
    return ones.tril().repeat_interleave(writes, 1)


def scan(factors: Tensor, addends: Tensor) -> tuple[Tensor, Tensor]:
    """States before each chunk, (G N, K, V), and after the last, (G, K, V), of S <- A_n S + B_n.

    A factors (G, N, K, K), B addends (G, N, K, V), S = 0 at first.
    """
    states = [torch.zeros_like(addends[:, 0])]
    for factor, addend in zip(factors.unbind(1), addends.unbind(1), strict=True):
        states.append(torch.baddbmm(addend, factor, states[-1]))
    return torch.stack(states[:-1], 1).flatten(0, 1), states[-1]


def unit(x: Tensor) -> Tensor:
    """x (..., K) divided by its norm; in two thirds of the time of `F.normalize` on a CPU."""
    return x * (x.square().sum(-1, keepdim=True) + LEAST_NORM**2).rsqrt()


def default_chunk_size(head_dim: int, writes: int) -> int:
    """Tokens a chunk: 16 writes for heads up to 16 wide, 32 for wider ones.

    Forward and backward on a CPU, batch 64, 4 heads, L 221: K 16 takes 138 ms with 16 writes and
    158 with 32; K 32 259, 240 and 386 with 16, 32 and 64; K 64 698, 545 and 678.
    """
    return max(1, (16 if head_dim <= 16 else 32) // writes)
