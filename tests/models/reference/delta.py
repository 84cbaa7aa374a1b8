"""The delta rule, as its recurrence."""

import torch
from torch import Tensor

from models.delta import DeltaRule
from tests.models.reference.attention import rotated
from tests.models.reference.heads import affine, by_heads, convolved, joined, silu


def mix(mixer: DeltaRule, x: Tensor) -> Tensor:
    n = mixer.num_householder
    parts = convolved(mixer.convolution, affine(mixer.qkv, x)).chunk(1 + 2 * n, -1)
    q, *rest = (by_heads(part, mixer.num_heads) for part in parts)  # (B, H, T, K) each
    q, *keys = (part / part.norm(dim=-1, keepdim=True) for part in (q, *rest[:n]))
    if mixer.position == "rope":
        q, *keys = (rotated(part) for part in (q, *keys))
    beta = by_heads(mixer.largest_beta * torch.sigmoid(affine(mixer.beta, x)), n)  # (B, n, T, H)
    k, v = torch.stack(keys, 3), torch.stack(rest[n:], 3)
    y, _ = recurrence(q, k, v, beta.permute(0, 3, 2, 1), decay(mixer, x))
    y = y / (y.square().mean(-1, keepdim=True) + 1e-5).sqrt() * mixer.norm.weight
    gate = 1 if mixer.gate is None else silu(affine(mixer.gate, x))
    return affine(mixer.out, joined(y) * gate)


def decay(mixer: DeltaRule, x: Tensor) -> Tensor:
    """α (B, H, T)."""
    if mixer.decay is None:
        return x.new_ones(len(x), mixer.num_heads, x.shape[1])
    dt = torch.log1p(affine(mixer.decay.dt, x).exp()).transpose(1, 2)
    return torch.exp(-mixer.decay.A_log.exp()[:, None] * dt)


def recurrence(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor
) -> tuple[Tensor, Tensor]:
    """Gated DeltaProduct (Siems et al. 2025) with the state as K x V, theirs transposed.

    q (B, H, T, K); k, v (B, H, T, n, ·); beta (B, H, T, n); decay (B, H, T), between 0 and 1.
    Token t multiplies the state by decay_t, then for each of its n writes by the generalised
    Householder matrix I - β k k^T, and adds β k v^T. Returns y (B, H, T, V) and the last
    state (B, H, K, V).
    """
    identity = torch.eye(k.shape[-1], dtype=k.dtype)
    state = k.new_zeros(*k.shape[:2], k.shape[-1], v.shape[-1])
    rows = []
    for t in range(q.shape[2]):
        state = decay[:, :, t, None, None] * state
        for j in range(k.shape[3]):
            key, value = k[:, :, t, j, :, None], v[:, :, t, j, None, :]  # K x 1, 1 x V
            strength = beta[:, :, t, j, None, None]
            state = (identity - strength * key * key.mT) @ state + strength * key * value
        rows.append((q[:, :, t, None] @ state).squeeze(-2))
    return torch.stack(rows, dim=2), state
