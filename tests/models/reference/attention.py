"""Attention from its definitions, a query at a time, in whatever type the inputs have. Positions
count from 1 where those of Yang et al. (2024) do."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

Attended = Callable[[int], Iterable[int]]  # by a token, from 1


def standard_set(i: int) -> list[int]:
    """What token i >= 1 attends to in softmax attention: {1, ..., i}."""
    return list(range(1, i + 1))


def sparse_set(i: int, block_size: int, window_blocks: int, summary_tokens: int) -> list[int]:
    """I_i of equation 6 of Yang et al. (2024), for i >= 1, with j <= i said in both parts."""
    window = {j for j in range(1, i + 1) if i - window_blocks * block_size < j <= i}
    summaries = {j for j in range(1, i + 1) if (j - 1) % block_size >= block_size - summary_tokens}
    return sorted(window | summaries)


def softmax_attention(
    q: Tensor, k: Tensor, v: Tensor, attended: Attended, keep: Tensor | None = None
) -> Tensor:
    """Softmax attention of each token i (from 1) to attended(i); q, k, v (..., T, K).

    keep (..., T, T) multiplies the weights after the softmax: dropout's mask over 1 - p.
    """
    rows = []
    for i in range(q.shape[-2]):
        seen = [j - 1 for j in attended(i + 1)]
        scores = (q[..., i : i + 1, :] * k[..., seen, :]).sum(-1) / q.shape[-1] ** 0.5  # (..., S)
        weights = scores.softmax(-1)
        if keep is not None:
            weights = weights * keep[..., i, seen]
        rows.append((weights[..., None] * v[..., seen, :]).sum(-2))  # (..., K)
    return torch.stack(rows, dim=-2)


def linear_attention(q: Tensor, k: Tensor, v: Tensor, position: str = "none") -> Tensor:
    """Katharopoulos et al. (2020), eq. 9, with φ = elu + 1; q, k, v (..., T, K).

    position="rope" turns features in the numerator alone (RoFormer eq. 19).
    """
    q, k = torch.nn.functional.elu(q) + 1, torch.nn.functional.elu(k) + 1
    turned_q, turned_k = (rotated(q), rotated(k)) if position == "rope" else (q, k)
    rows = []
    for i in range(q.shape[-2]):
        weights = (turned_q[..., i : i + 1, :] * turned_k[..., : i + 1, :]).sum(-1)  # (..., i)
        total = (q[..., i : i + 1, :] * k[..., : i + 1, :]).sum((-1, -2))  # (...)
        rows.append((weights[..., None] * v[..., : i + 1, :]).sum(-2) / total[..., None])
    return torch.stack(rows, dim=-2)


def rotated(x: Tensor) -> Tensor:
    """RoFormer's R_t x_t for t = 0, 1, ...: pairs as complex numbers times exp(i t θ_a)."""
    return torch.stack([apply_rotary(x[..., t, :], t) for t in range(x.shape[-2])], dim=-2)


def apply_rotary(x: Tensor, t: int) -> Tensor:
    """R_t x of every x (..., K)."""
    pairs = torch.complex(x[..., 0::2], x[..., 1::2])  # (..., K / 2)
    theta = [10000.0 ** (-2 * a / x.shape[-1]) for a in range(x.shape[-1] // 2)]
    turn = torch.tensor([complex(0, t * angle) for angle in theta], dtype=torch.complex128)
    return torch.view_as_real(pairs * turn.exp()).flatten(-2).to(x.dtype)
