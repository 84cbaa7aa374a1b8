"""Plain reference implementations that the fast ones are tested against.

First functions from the literature, then `NAME(mixer, x)` for every mixer in `models/NAME.py`: its
output for x (B, T, D), computed from its parameters one token at a time, in their dtype (the tests
use float64), without dropout. Positions count from 1 where those of Yang et al. (2024) do.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor
from torch.nn.functional import elu

from models.decayed import ChannelDecay, FixedDecay

Attended = Callable[[int], Iterable[int]]  # maps a token, from 1, to those it attends to


def standard_set(i: int) -> list[int]:
    """Tokens that token i >= 1 attends to in softmax attention: {1, ..., i}."""
    return list(range(1, i + 1))


def sparse_set(i: int, block_size: int, window_blocks: int, summary_tokens: int) -> list[int]:
    """I_i of equation 6 of Yang et al. (2024), for i >= 1, with j <= i in both parts."""
    window = {j for j in range(1, i + 1) if i - window_blocks * block_size < j <= i}
    summaries = {j for j in range(1, i + 1) if (j - 1) % block_size >= block_size - summary_tokens}
    return sorted(window | summaries)


def softmax_attention(
    q: Tensor, k: Tensor, v: Tensor, attended: Attended, keep: Tensor | None = None
) -> Tensor:
    """Softmax attention of each token i (from 1) to attended(i); q, k, v (..., T, K).

    keep (..., T, T) multiplies the weights after the softmax: the dropout mask over 1 - p.
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

    position="rope" rotates features in the numerator only (RoFormer eq. 19).
    """
    q, k = elu(q) + 1, elu(k) + 1
    turned_q, turned_k = (rotated(q), rotated(k)) if position == "rope" else (q, k)
    rows = []
    for i in range(q.shape[-2]):
        weights = (turned_q[..., i : i + 1, :] * turned_k[..., : i + 1, :]).sum(-1)  # (..., i)
        total = (q[..., i : i + 1, :] * k[..., : i + 1, :]).sum((-1, -2))  # (...)
        rows.append((weights[..., None] * v[..., : i + 1, :]).sum(-2) / total[..., None])
    return torch.stack(rows, dim=-2)


def tensor_attention(
    q: Tensor, k1: Tensor, k2: Tensor, v1: Tensor, v2: Tensor,
    position: str = "none", scale: float | None = None,
) -> Tensor:  # fmt: skip
    """Softmax of each token i over all pairs j, k <= i; every tensor (..., T, K).

    s_ijk = scale Σ_a q_ia k1_ja k2_ka, scale 1 / K unless given; position="rope" rotates k1_j by
    i - j and k2_k by i - k.
    """
    scale = 1 / q.shape[-1] if scale is None else scale
    rows = []
    for i in range(q.shape[-2]):
        keys = pair_keys(k1, i, position), pair_keys(k2, i, position)  # (..., i + 1, K)
        scores = scale * torch.einsum("...a,...ja,...ka->...jk", q[..., i, :], *keys)
        weights = scores.flatten(-2).softmax(-1).view_as(scores)
        rows.append(pair_sum(weights, v1, v2))
    return torch.stack(rows, dim=-2)


def tensor_linear_attention(
    q: Tensor, k1: Tensor, k2: Tensor, v1: Tensor, v2: Tensor, position: str = "none"
) -> Tensor:
    """Tensor attention with weights Σ_a φ(q_i)_a φ(k1_j)_a φ(k2_k)_a, φ = elu + 1; (..., T, K).

    position="rope" rotates the keys' features in the numerator only, as in `linear_attention`.
    """
    q, k1, k2 = (elu(x) + 1 for x in (q, k1, k2))
    product, rows = "...a,...ja,...ka->...jk", []
    for i in range(q.shape[-2]):
        weights, unturned = (
            torch.einsum(product, q[..., i, :], pair_keys(k1, i, turn), pair_keys(k2, i, turn))
            for turn in (position, "none")
        )
        rows.append(pair_sum(weights, v1, v2) / unturned.sum((-2, -1))[..., None])
    return torch.stack(rows, dim=-2)


def pair_keys(keys: Tensor, i: int, position: str) -> Tensor:
    """Keys 0..i of (..., T, K) for query i; rope rotates key j by i - j."""
    seen = keys[..., : i + 1, :]
    return rotated(seen.flip(-2)).flip(-2) if position == "rope" else seen


def pair_sum(weights: Tensor, v1: Tensor, v2: Tensor) -> Tensor:
    """Σ_jk w_jk v1_j v2_k, (..., K), for weights (..., i + 1, i + 1)."""
    i = weights.shape[-1]
    return torch.einsum("...jk,...ja,...ka->...a", weights, v1[..., :i, :], v2[..., :i, :])


def recurrence(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor | None = None, beta: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Linear attention with decay; with β, gated DeltaProduct (Siems et al. 2025, whose state is
    the transpose).

    q (B, H, T, K); k, v (B, H, T, n, ·); log_decay (B, H, T, K or 1); beta (B, H, T, n). Token t
    multiplies the rows of the state S by exp(log_decay_t), then n times adds k v^T or, with β,
    replaces S by (I - β k k^T) S + β k v^T. Returns y (B, H, T, V) and the last state (B, H, K, V).
    """
    state = k.new_zeros(*k.shape[:2], k.shape[-1], v.shape[-1])
    rows = []
    for t in range(q.shape[2]):
        if log_decay is not None:
            state = log_decay[:, :, t].exp()[..., None] * state
        for j in range(k.shape[3]):
            key, value = k[:, :, t, j, :, None], v[:, :, t, j, None, :]  # K x 1, 1 x V
            if beta is None:
                state = state + key * value
            else:
                b = beta[:, :, t, j, None, None]
                eye = torch.eye(len(key[0, 0])).to(state)
                state = (eye - b * key @ key.mT) @ state + b * key * value
        rows.append((q[:, :, t, None] @ state).squeeze(-2))
    return torch.stack(rows, dim=2), state


def rotated(x: Tensor) -> Tensor:
    """RoFormer's R_t x_t for t = 0, 1, ...: pairs as complex numbers times exp(i t θ_a)."""
    pairs = torch.complex(x[..., 0::2], x[..., 1::2])  # (..., T, K / 2)
    theta = [10000.0 ** (-2 * a / x.shape[-1]) for a in range(x.shape[-1] // 2)]
    turns = torch.tensor([[t * a for a in theta] for t in range(x.shape[-2])], dtype=torch.float64)
    return torch.view_as_real(pairs * torch.exp(1j * turns)).flatten(-2).to(x.dtype)


# Queries, keys, values and outputs per head


def projected(mixer, x: Tensor) -> list[Tensor]:
    """The `mixer.parts` projections of x (B, T, D), such as q, k, v, each (B, H, T, K)."""
    qkv = convolved(mixer.convolution, affine(mixer.qkv, x))
    return [by_heads(part, mixer.num_heads) for part in qkv.chunk(mixer.parts, -1)]


def affine(layer: torch.nn.Linear, x: Tensor) -> Tensor:
    return x @ layer.weight.T + (0 if layer.bias is None else layer.bias)


def by_heads(x: Tensor, num_heads: int) -> Tensor:
    """(B, T, H * K) to (B, H, T, K): head h has channels h K to (h + 1) K."""
    return torch.stack(x.chunk(num_heads, -1), dim=1)


def joined(y: Tensor) -> Tensor:
    """(B, H, T, K) to (B, T, H * K)."""
    return torch.cat(y.unbind(1), dim=-1)


def convolved(convolution, x: Tensor) -> Tensor:
    """Canon-B or SiLU(conv(x)) of x (B, T, C), one tap at a time."""
    kernel = convolution.kernel
    if kernel is None:
        return x
    rows = []
    for t in range(x.shape[1]):
        taps = [kernel[:, -1 - s] * x[:, t - s] for s in range(min(t + 1, kernel.shape[1]))]
        mixed = torch.stack(taps).sum(0)
        rows.append(x[:, t] + mixed if convolution.form == "canon" else silu(mixed))
    return torch.stack(rows, dim=1)


def silu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


def normed(y: Tensor) -> Tensor:
    return y / (y.square().mean(-1, keepdim=True) + 1e-5).sqrt()


# Mixers


def softmax_mix(mixer, x: Tensor, attended: Attended) -> Tensor:
    """Output of a softmax mixer for x (B, T, D); token i (from 1) attends to attended(i)."""
    q, k, v = projected(mixer, x)
    if mixer.position == "rope":
        q, k = rotated(q), rotated(k)
    return affine(mixer.out, joined(softmax_attention(q, k, v, attended)))


def standard(mixer, x):
    return softmax_mix(mixer, x, standard_set)


def sparse(mixer, x):
    pattern = mixer.block_size, mixer.window_blocks, mixer.summary_tokens
    return softmax_mix(mixer, x, lambda i: sparse_set(i, *pattern))


def sliding_window(mixer, x):
    return softmax_mix(mixer, x, lambda i: range(max(1, i - mixer.window + 1), i + 1))


def last_lines(mixer, x: Tensor, ends: list[bool] | None = None) -> Tensor:
    """`ends`: which tokens end a line, in every row."""
    ends = [False] * x.shape[1] if ends is None else ends
    line = [sum(ends[:j]) for j in range(x.shape[1])]
    block = mixer.block_size

    def sees(i: int, j: int) -> bool:
        kept = j < mixer.kept and line[j] == 0
        near = line[j] >= line[i] - 1 and i - j < mixer.window
        return (kept or near) and (i - j < block or j % block == block - 1)

    return softmax_mix(mixer, x, lambda i: [j + 1 for j in range(i) if sees(i - 1, j)])


def linear(mixer, x):
    q, k, v = projected(mixer, x)
    return affine(mixer.out, joined(linear_attention(q, k, v, mixer.position)))


def taylor(mixer, x):
    """Weights 1 + s + s²/2."""
    qkv = torch.cat((affine(mixer.qk, x), affine(mixer.v, x)), dim=-1)
    parts = convolved(mixer.convolution, qkv).split((mixer.width, mixer.width, mixer.dim), dim=-1)
    q, k, v = (by_heads(part, mixer.num_heads) for part in parts)
    if mixer.position == "rope":
        q, k = rotated(q), rotated(k)
    rows = []
    for i in range(x.shape[1]):
        scores = (q[:, :, i : i + 1] * k[:, :, : i + 1]).sum(-1) / mixer.feature_dim**0.5
        weights = 1 + scores + scores**2 / 2  # (B, H, i + 1)
        total = weights.sum(-1, keepdim=True)
        rows.append((weights[..., None] * v[:, :, : i + 1]).sum(-2) / total)
    return affine(mixer.out, joined(torch.stack(rows, dim=2)))


def tensor(mixer, x):
    mixed = tensor_attention(*projected(mixer, x), mixer.position, mixer.scale)
    return affine(mixer.out, joined(mixed))


def tensor_linear(mixer, x):
    mixed = tensor_linear_attention(*projected(mixer, x), mixer.position)
    return affine(mixer.out, joined(mixed))


def decayed(mixer, x):
    q, k, v = projected(mixer, x)
    if mixer.position == "rope":
        q, k = rotated(q), rotated(k)
    log_decay, dt = decays(mixer, x)
    y, _ = recurrence(q, k[:, :, :, None], (v * dt)[:, :, :, None], log_decay)
    if mixer.skip is not None:
        y = y + mixer.skip[:, :, None] * v
    y = joined(normed(y) * mixer.gain[:, None])
    return affine(mixer.out, y if mixer.gate is None else y * silu(affine(mixer.gate, x)))


def decays(mixer, x: Tensor) -> tuple[Tensor, Tensor]:
    """log α (B, H, T, K or 1) and Δ (B, H, T, 1) or 1."""
    decay, one = mixer.decay, x.new_ones(())
    if isinstance(decay, FixedDecay):
        gamma = [1 - 2.0 ** (-5 - head) for head in range(mixer.num_heads)]
        log_decay = torch.tensor(gamma, dtype=x.dtype).log()[None, :, None, None]
        return log_decay.expand(len(x), -1, x.shape[1], -1), one
    if isinstance(decay, ChannelDecay):
        gate = by_heads(affine(decay.up, affine(decay.down, x)), mixer.num_heads)
        return -torch.log1p((-gate).exp()) / 16, one
    return head_decay(decay, x)


def head_decay(decay, x: Tensor) -> tuple[Tensor, Tensor]:
    dt = torch.log1p(affine(decay.dt, x).exp()).transpose(1, 2)[..., None]  # (B, H, T, 1)
    return -decay.A_log.exp()[:, None, None] * dt, dt


def delta(mixer, x):
    n = mixer.num_householder
    parts = convolved(mixer.convolution, affine(mixer.qkv, x)).chunk(1 + 2 * n, -1)
    q, *rest = (by_heads(part, mixer.num_heads) for part in parts)  # (B, H, T, K) each
    q, *keys = (part / part.norm(dim=-1, keepdim=True) for part in (q, *rest[:n]))
    if mixer.position == "rope":
        q, *keys = (rotated(part) for part in (q, *keys))
    beta = by_heads(mixer.largest_beta * torch.sigmoid(affine(mixer.beta, x)), n)  # (B, n, T, H)
    log_decay = None if mixer.decay is None else head_decay(mixer.decay, x)[0]
    k, v = torch.stack(keys, 3), torch.stack(rest[n:], 3)
    y, _ = recurrence(q, k, v, log_decay, beta.permute(0, 3, 2, 1))
    gate = 1 if mixer.gate is None else silu(affine(mixer.gate, x))
    return affine(mixer.out, joined(normed(y) * mixer.norm.weight) * gate)


def lstm(mixer, x):
    own = dict(mixer.lstm.named_parameters())
    h = c = x.new_zeros(len(x), mixer.dim)
    rows = []
    for t in range(x.shape[1]):
        gates = x[:, t] @ own["weight_ih_l0"].T + own["bias_ih_l0"]
        gates = gates + h @ own["weight_hh_l0"].T + own["bias_hh_l0"]
        i, f, g, o = gates.chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        rows.append(h)
    return torch.stack(rows, dim=1)


def running_mean(mixer, x):
    return torch.stack([x[:, : t + 1].mean(1) for t in range(x.shape[1])], dim=1)
