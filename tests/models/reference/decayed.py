"""Linear attention that forgets, as its recurrence."""

import torch
from torch import Tensor

from models.decayed import ChannelDecay, DecayedAttention, FixedDecay, HeadDecay
from tests.models.reference.attention import rotated
from tests.models.reference.heads import affine, by_heads, joined, projected, silu


def mix(mixer: DecayedAttention, x: Tensor) -> Tensor:
    q, k, v = projected(mixer, x)
    if mixer.position == "rope":
        q, k = rotated(q), rotated(k)
    log_decay, dt = decays(mixer, x)
    y, _ = recurrence(q, k, v * dt, log_decay)
    if mixer.skip is not None:
        y = y + mixer.skip[:, :, None] * v
    y = y / (y.square().mean(-1, keepdim=True) + 1e-5).sqrt() * mixer.gain[:, None]
    y = joined(y)
    return affine(mixer.out, y if mixer.gate is None else y * silu(affine(mixer.gate, x)))


def recurrence(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor) -> tuple[Tensor, Tensor]:
    """S_t = diag(exp g_t) S_{t-1} + k_t v_t^T and y_t = S_t^T q_t, all (B, H, T, ·); y and S."""
    state = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1])
    rows = []
    for t in range(q.shape[2]):
        write = k[:, :, t, :, None] * v[:, :, t, None, :]
        state = log_decay[:, :, t].exp()[..., None] * state + write
        rows.append((q[:, :, t, :, None] * state).sum(-2))
    return torch.stack(rows, dim=2), state


def decays(mixer: DecayedAttention, x: Tensor) -> tuple[Tensor, Tensor]:
    """log α (B, H, T, K or 1) and Δ (B, H, T, 1) or 1."""
    decay, one = mixer.decay, x.new_ones(())
    if isinstance(decay, FixedDecay):
        gamma = [1 - 2.0 ** (-5 - head) for head in range(mixer.num_heads)]
        log_decay = torch.tensor(gamma, dtype=x.dtype).log()[None, :, None, None]
        return log_decay.expand(len(x), -1, x.shape[1], -1), one
    if isinstance(decay, ChannelDecay):
        gate = by_heads(affine(decay.up, affine(decay.down, x)), mixer.num_heads)
        return -torch.log1p((-gate).exp()) / 16, one
    assert isinstance(decay, HeadDecay)
    pre = affine(decay.dt, x).transpose(1, 2)[..., None]  # (B, H, T, 1)
    dt = torch.log1p(pre.exp())
    return -decay.A_log.exp()[:, None, None] * dt, dt
