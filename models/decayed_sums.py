"""Sums that forget: a state of K x W numbers that decays before every token writes into it."""

from __future__ import annotations

import torch
from torch import Tensor

from models.chunks import ChunkDecays, split

CHUNK_SIZE = 32


def decayed_sums(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor) -> tuple[Tensor, Tensor]:
    """y_t = S_t^T q_t with S_t = diag(exp g_t) S_{t-1} + k_t v_t^T, S_0 = 0, in O(T).

    q, k (B, H, T, K), v (B, H, T, W), log_decay g <= 0 and finite, (B, H, T, K) or (B, H, T, 1).
    Returns y (B, H, T, W) and the last state (B, H, K, W).

    Token j < i enters y_i with weights exp(Σ_{j<s<=i} g_s), within a chunk of tokens directly,
    from earlier chunks by the state that they pass on. (Chunks: Yang et al. 2023, arXiv 2312.06635,
    section 4; Dao and Gu 2024, arXiv 2405.21060, section 6.)
    """
    length = q.shape[2]
    # No sum between chunks weighs more than the chunk.
    size = power_of_two(min(max(CHUNK_SIZE, k.shape[-1]), length))
    q, k, v, log_decay = (split(x, size) for x in (q, k, v, log_decay))  # (B, H, N, C, ·)
    within = within_chunks if log_decay.shape[-1] > 1 else within_chunks_of_one_decay
    y, from_start, to_end = within(q, k, v, log_decay)
    written = (k * to_end).mT @ v  # (B, H, N, K, W)
    kept = from_start[:, :, :, -1].unsqueeze(-1)  # (B, H, N, K or 1, 1)
    states = [torch.zeros_like(written[:, :, 0])]
    for keep, write in zip(kept.unbind(2), written.unbind(2), strict=True):
        states.append(keep * states[-1] + write)
    if len(states) > 2:  # nothing comes before the first chunk
        y = y + (q * from_start) @ torch.stack(states[:-1], dim=2)
    return y.flatten(2, 3)[:, :, :length], states[-1]


def within_chunks(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor) -> tuple[Tensor, ...]:
    """y of each chunk (B, H, N, C, W) by itself, and decays within it (B, H, N, C, K).

    These are, for every token, that from the chunk's start up to and with it, and that of all
    behind it.

    Pairs of neighbouring blocks of 1, 2, 4, ... tokens are joined until a block is the chunk: from
    the earlier block to the later one the sum is that behind j, up to the border, and that from the
    border up to i, one a factor of k_j, the other of q_i. Both are sums of numbers <= 0, so nothing
    overflows, and no difference of sums loses digits, however fast a channel forgets.
    """
    size, span = q.shape[3], 1
    y = (q * k).sum(-1, keepdim=True) * v
    upto, behind = log_decay, torch.zeros_like(log_decay)  # within blocks of `span` tokens
    while span < size:
        # (B, H, N, C / 2 span, span, ·): the earlier and the later block of every pair
        early_k, early_v, late_q = pairs(k, span)[0], pairs(v, span)[0], pairs(q, span)[1]
        early_upto, late_upto = pairs(upto, span)
        early_behind, late_behind = pairs(behind, span)
        early_y, late_y = pairs(y, span)
        keys = early_k * early_behind.exp()
        weights = (late_q * late_upto.exp()) @ keys.transpose(-1, -2)  # (..., span, span)
        y = joined(early_y, late_y + weights @ early_v)
        early_all, late_all = early_upto[..., -1:, :], late_upto[..., -1:, :]
        upto = joined(early_upto, late_upto + early_all)
        behind = joined(early_behind + late_all, late_behind)
        span *= 2
    return y, upto.exp(), behind.exp()


def within_chunks_of_one_decay(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor
) -> tuple[Tensor, ...]:
    """As `within_chunks` where all channels forget alike: g (B, H, N, C, 1).

    The decay between two tokens is one number, so that a chunk is one masked product.
    """
    decay = ChunkDecays(log_decay.flatten(0, 2).squeeze(-1), writes=1)
    of_chunks = log_decay.shape[:3]
    weights = (q @ k.mT * decay.to_queries.unflatten(0, of_chunks)).tril()  # (B, H, N, C, C)
    ends = decay.queries_from_start, decay.to_end
    return weights @ v, *(x.unflatten(0, of_chunks) for x in ends)


def pairs(x: Tensor, span: int) -> tuple[Tensor, ...]:
    """(B, H, N, C, ·) in blocks of `span`: the first of every two, and the second."""
    return x.unflatten(3, (-1, 2, span)).unbind(4)


def joined(early: Tensor, late: Tensor) -> Tensor:
    """The inverse of `pairs`."""
    return torch.stack((early, late), dim=4).flatten(3, 5)


def power_of_two(size: int) -> int:
    """The least power of two that is at least `size`."""
    return 1 << (size - 1).bit_length()
