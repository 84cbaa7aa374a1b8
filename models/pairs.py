"""Softmax over pairs of keys, a block of queries at a time; the backward pass computes it again.

A query's scores are s_jk = K1_jᵀ M K2_k with M symmetric: a diagonal, and beside it one entry for
each pair of channels (2a, 2a + 1), given twice, or nothing (a last axis of 0). Shapes: G batch and
heads in one, R queries of a block, N keys that they see.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# Scores held at a time, on a CPU and elsewhere. 1 MiB of float32 fits a core's cache; a GPU wants
# more work a call.
SCORES_CPU, SCORES_ELSEWHERE = 2**18, 2**26
SMALLEST_BLOCK = 16  # queries, where that many fit


class PairAttention(torch.autograd.Function):
    """Causal attention to pairs: diagonal, beside, k1, k2, v1, v2 to y, all (B, H, T, K)."""

    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> Tensor:
        """Return y (B, H, T, K); keeps it and log Σ exp s, nothing of T²."""
        diagonal, beside, k1, k2, v1, v2 = (x.flatten(0, 1) for x in inputs)  # (G, T, K)
        y, lse = torch.empty_like(diagonal), diagonal.new_empty(diagonal.shape[:2])
        for g, start, stop in _blocks(diagonal):
            seen, own = (g, slice(stop)), (g, slice(start, stop))
            queried = _queried(diagonal[own], beside[own], k1[seen])  # (G, R, N, K)
            scores = _scores(queried, k2[seen])  # (G, R, N, N)
            _hide(scores, _future(stop - start, diagonal.device))
            y[own], lse[own] = _mixed(scores, v1[seen], v2[seen])
        ctx.save_for_backward(diagonal, beside, k1, k2, v1, v2, y, lse)
        return y.view_as(inputs[0])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        """Return the gradients of all six inputs; P is e^(s - lse) once more."""
        diagonal, beside, k1, k2, v1, v2, y, lse = ctx.saved_tensors  # (G, T, K), lse (G, T)
        g_y = gradient.reshape(y.shape)
        delta = (g_y * y).sum(-1)  # (G, T)
        found = [torch.zeros_like(x) for x in ctx.saved_tensors[:6]]
        g_diagonal, g_beside, g_k1, g_k2, g_v1, g_v2 = found
        for g, start, stop in _blocks(y):
            seen, own = (g, slice(stop)), (g, slice(start, stop))
            queried = _queried(diagonal[own], beside[own], k1[seen])  # (G, R, N, K)
            weights = _scores(queried, k2[seen]).sub_(lse[own][..., None, None]).exp_()
            _hide(weights, _future(stop - start, y.device), 0.0)
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
            if beside.shape[-1]:
                g_beside[own] = (g_queried * swapped(k1[seen])[:, None]).sum(2)
                g_k1[seen] += swapped(_summed(beside[own], g_queried))
        return tuple(x.unflatten(0, gradient.shape[:2]) for x in found)


def attend_last(form: tuple[Tensor, Tensor], seen: Sequence[Tensor], hidden: Tensor) -> Tensor:
    """One query a row attends to all pairs of N keys that are not hidden, (B, N).

    form: diagonal and beside, (B, H, K); seen: k1, k2, v1, v2 (B, H, N, K). Returns (B, H, K).
    """
    batch, heads, length, width = seen[0].shape
    diagonal, beside = (x.flatten(0, 1)[:, None] for x in form)  # (G, 1, K)
    k1, k2, v1, v2 = (x.flatten(0, 1) for x in seen)  # (G, N, K)
    hidden = hidden.repeat_interleave(heads, 0)[:, None]  # (G, 1, N)
    y = torch.empty_like(diagonal)
    for some in _groups(batch * heads, length, _most(y)):
        scores = _scores(_queried(diagonal[some], beside[some], k1[some]), k2[some])
        _hide(scores, hidden[some])
        y[some] = _mixed(scores, v1[some], v2[some])[0]
    return y.view(batch, heads, width)


def _most(x: Tensor) -> int:
    return SCORES_CPU if x.device.type == "cpu" else SCORES_ELSEWHERE


def _groups(groups: int, length: int, most: int) -> Iterator[slice]:
    """As many groups at a time as have `most` scores of one query, one at least."""
    some = max(1, most // length**2)
    return (slice(first, min(first + some, groups)) for first in range(0, groups, some))


def _blocks(x: Tensor) -> Iterator[tuple[slice, int, int]]:
    """Groups, first query and last (excluded) of blocks of x (G, T, K), by the scores they hold.

    A block computes scores that its first queries do not see, so it is at most half as long as
    what lies before it.
    """
    length = x.shape[1]
    for some in _groups(x.shape[0], length, _most(x)):
        room = _most(x) // (some.stop - some.start)
        start = 0
        while start < length:
            stop = min(length, start + max(SMALLEST_BLOCK, start // 2))
            while stop > start + 1 and (stop - start) * stop**2 > room:
                stop -= 1
            yield some, start, stop
            start = stop


def _queried(diagonal: Tensor, beside: Tensor, k1: Tensor) -> Tensor:
    """K1 M of every query: diagonal (G, R, K), k1 (G, N, K) to (G, R, N, K)."""
    queried = diagonal[:, :, None] * k1[:, None]
    if beside.shape[-1]:
        queried.addcmul_(beside[:, :, None], swapped(k1)[:, None])
    return queried


def swapped(x: Tensor) -> Tensor:
    """Channels 2a and 2a + 1 exchanged."""
    return x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)


def _scores(queried: Tensor, k2: Tensor) -> Tensor:
    """(G, R, N, K) and (G, N, K) to (G, R, N, N)."""
    return (queried.flatten(1, 2) @ k2.mT).unflatten(1, queried.shape[1:3])


def _future(queries: int, device: torch.device) -> Tensor:
    """(1, R, R - 1): which of the last R - 1 keys of a block each of its R queries must not see."""
    return torch.ones(queries, queries, dtype=torch.bool, device=device).triu(1)[None, :, 1:]


def _hide(scores: Tensor, hidden: Tensor, value: float = -torch.inf) -> None:
    """Fill scores (G, R, N, N) of pairs with a hidden key; hidden (., R, n), of the last n keys."""
    count = hidden.shape[-1]
    if count:
        scores[..., -count:].masked_fill_(hidden[:, :, None], value)
        scores[..., -count:, :].masked_fill_(hidden[..., None], value)


def _mixed(scores: Tensor, v1: Tensor, v2: Tensor) -> tuple[Tensor, Tensor]:
    """Scores (G, R, N, N), overwritten, and values (G, N, K) to y (G, R, K), lse (G, R)."""
    top = scores.amax((-1, -2), keepdim=True)
    weights = scores.sub_(top).exp_()
    total = weights.sum((-1, -2))  # (G, R)
    u = (weights.flatten(1, 2) @ v2).unflatten(1, scores.shape[1:3])  # (G, R, N, K)
    y = (u * v1[:, None]).sum(2) / total[..., None]
    return y, total.log() + top.squeeze((-1, -2))


def _summed(x: Tensor, y: Tensor) -> Tensor:
    """Σ_r x (G, R, K) ∘ y (G, R, N, K), which is (G, N, K)."""
    return (x[:, :, None] * y).sum(1)
