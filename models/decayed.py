"""Linear attention with decay: RetNet, gated linear attention (GLA), Mamba-2's core."""

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from common import UserError
from models.linear import split
from models.mixer import Role, upcast, without_autocast, xavier_uniform
from models.recurrent import RecurrentMixer

Range = Annotated[Sequence[float], Field(min_length=2, max_length=2)]
CHUNK_SIZE = 8
# exp of this is 0 even in float64. Lower logarithms in a sum would cost others their digits.
LEAST_LOG_DECAY = -800.0
EXEMPT = Role("vector", decays=False)
DECAY_ROLES = {"decay.A_log": EXEMPT, "decay.dt.bias": EXEMPT}  # of `HeadDecay`, as in Mamba


class DecayedAttention(RecurrentMixer):
    """S_t = diag(α_t) S_{t-1} + Δ_t k_t v_t^T, y_t = S_t^T q_t in every head.

    decay="fixed": α is a constant per head (RetNet, Sun et al. 2023, arXiv 2307.08621, eq. 6).
    "channel": a gate per key channel (`ChannelDecay`). "head": a gate per head (`HeadDecay`), with
    v_t times a learned gain per head added to y_t (Mamba-2's D). Then RMSNorm per head (so q is not
    divided by √K), a gate SiLU(W_g x_t) if output_gate (RetNet, eq. 8), and the output projection.
    """

    has_kernel = True

    def __init__(
        self,
        *sizes: Any,
        decay: Literal["fixed", "channel", "head"] = "fixed",
        A_range: Range = (1, 16),
        output_gate: bool = True,
        **shared: Any,
    ):
        super().__init__(*sizes, **shared)
        dim, num_heads = self.dim, self.num_heads
        if decay == "head":
            self.decay = HeadDecay(dim, num_heads, A_range)
        else:
            self.decay = (FixedDecay if decay == "fixed" else ChannelDecay)(dim, num_heads)
        self.gain = nn.Parameter(torch.ones(num_heads, self.head_dim))
        self.skip = nn.Parameter(torch.ones(num_heads, 1)) if decay == "head" else None
        self.gate = nn.Linear(dim, dim) if output_gate else None
        if self.gate is not None:
            xavier_uniform(self.gate)

    def parameter_roles(self) -> dict[str, Role]:
        roles = super().parameter_roles()
        return roles if self.skip is None else {**roles, **DECAY_ROLES, "skip": EXEMPT}

    def recurrence_inputs(self, x: Tensor, qkv: Tensor, positions: Tensor) -> tuple[Any, ...]:
        q, k, v = self.split_heads(qkv)  # (..., H, K)
        log_decay, dt = self.decay(x)  # (..., H, K or 1), (..., H, 1)
        q, k = (self.apply_rotary(upcast(part), positions[:, None]) for part in (q, k))
        return q, k.unsqueeze(-3), (upcast(v) * dt).unsqueeze(-3), None, log_decay

    def scan(
        self, q: Tensor, k: Tensor, v: Tensor, beta: None, log_decay: Tensor
    ) -> tuple[Tensor, Tensor]:
        given = (x.transpose(1, 2) for x in (q, k.squeeze(2), v.squeeze(2), log_decay))
        y, state = decayed_sums(*given)
        return y.transpose(1, 2), state

    def normed(self, x: Tensor, y: Tensor, qkv: Tensor) -> Tensor:
        with without_autocast(x):
            y = y if self.skip is None else y + self.skip * upcast(self.split_heads(qkv)[2])
            return (F.rms_norm(y, y.shape[-1:], eps=1e-5) * self.gain).to(qkv.dtype)


# How fast heads forget. `forward` maps x (..., D) to the log decay, at most 0, (..., H, K) or
# (..., H, 1), and to the factor on written values, (..., H, 1).


class FixedDecay(nn.Module):
    """γ_h = 1 - 2^(-5 - h) for head h = 0, 1, ... (RetNet, eq. 8)."""

    def __init__(self, dim: int, num_heads: int):
        super().__init__()
        self.num_heads = num_heads

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        heads = torch.arange(self.num_heads, device=x.device, dtype=upcast(x).dtype)
        log_decay = torch.log1p(-torch.exp2(-5 - heads))[:, None]  # (H, 1)
        log_decay = log_decay.expand(*x.shape[:-1], -1, -1)
        return log_decay, torch.ones_like(log_decay)


class ChannelDecay(nn.Module):
    """α_t = σ(W_2 W_1 x_t + b)^(1/τ) for every key channel, τ = 16, W_1 with 16 rows (GLA, Yang et
    al. 2023, arXiv 2312.06635, section 4)."""

    RANK, TEMPERATURE = 16, 16.0

    def __init__(self, dim: int, num_heads: int):
        super().__init__()
        self.num_heads = num_heads
        self.down = nn.Linear(dim, self.RANK, bias=False)
        self.up = nn.Linear(self.RANK, dim)
        xavier_uniform(self)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        gate = self.up(self.down(x)).unflatten(-1, (self.num_heads, -1))
        log_decay = F.logsigmoid(upcast(gate)) / self.TEMPERATURE
        return log_decay, torch.ones_like(log_decay[..., :1])


class HeadDecay(nn.Module):
    """a_t = exp(-Δ_t exp(A_log)) per head; Δ_t = softplus(W x_t + b) also scales the values.

    Mamba-2 (Dao and Gu 2024, arXiv 2405.21060, section 7), initialised as in their code: W by
    `nn.Linear`, exp(A_log) uniform in A_range ([1, 16] there, [0, 16] in Gated DeltaNet, Yang,
    Kautz and Hatamizadeh 2025), softplus(b) log-uniform in [0.001, 0.1]. A Xavier-uniform W, with
    so few rows, would halve the decay time.
    """

    def __init__(self, dim: int, num_heads: int, A_range: Range):
        super().__init__()
        low, high = A_range
        if not 0 <= low < high:
            raise UserError(f"A_range={A_range}: expected [low, high] with 0 <= low < high")
        self.dt = nn.Linear(dim, num_heads)
        rates = high - (high - low) * torch.rand(num_heads)  # above low: 0 has no logarithm
        self.A_log = nn.Parameter(rates.log())
        with torch.no_grad():
            dt = torch.empty(num_heads).uniform_(math.log(1e-3), math.log(1e-1)).exp()
            self.dt.bias.copy_(dt + torch.log(-torch.expm1(-dt)))  # softplus of it is dt

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        dt = F.softplus(upcast(self.dt(x)))[..., None]
        with without_autocast(x):
            return -self.A_log.exp()[:, None] * dt, dt


def decayed_sums(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor) -> tuple[Tensor, Tensor]:
    """y_t = S_t^T q_t with S_t = diag(exp g_t) S_{t-1} + k_t v_t^T, S_0 = 0, in O(T).

    q, k (B, H, T, K), v (B, H, T, W), log_decay g <= 0, finite, (B, H, T, K) or (B, H, T, 1).
    Returns y (B, H, T, W) and the last state (B, H, K, W). Tokens of a chunk mix directly, chunks
    through the state (GLA, section 4; Mamba-2, section 6).
    """
    length = q.shape[2]
    size = min(CHUNK_SIZE, length)
    q, k, v, log_decay = (split(x, size) for x in (q, k, v, log_decay))  # (B, H, N, C, ·)
    between, from_start, to_end = chunk_decays(log_decay)
    if log_decay.shape[-1] > 1:
        weights = (q[..., :, None, :] * k[..., None, :, :] * between).sum(-1)  # (B, H, N, C, C)
    else:
        weights = q @ k.mT * between.squeeze(-1)
    y = weights.tril() @ v
    written = (k * to_end).mT @ v  # (B, H, N, K, W)
    kept = from_start[:, :, :, -1].unsqueeze(-1)  # (B, H, N, K or 1, 1)
    states = [torch.zeros_like(written[:, :, 0])]
    for keep, write in zip(kept.unbind(2), written.unbind(2), strict=True):
        states.append(keep * states[-1] + write)
    if len(states) > 2:  # nothing comes before the first chunk
        y = y + (q * from_start) @ torch.stack(states[:-1], dim=2)
    return y.flatten(2, 3)[:, :, :length], states[-1]


def chunk_decays(log_decay: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Products of decays within chunks, from their logarithms (..., C, n).

    From after token j to token i, (..., C, C, n), 1 where j is later; from before the chunk to
    after a token, and from after a token to the chunk's end, (..., C, n). Logarithms are summed in
    float64: their differences would lose digits in float32.
    """
    dtype = log_decay.dtype
    sums = log_decay.clamp(min=LEAST_LOG_DECAY).double().cumsum(-2)
    between = (sums[..., :, None, :] - sums[..., None, :, :]).to(dtype).clamp(max=0).exp()
    return between, sums.to(dtype).exp(), (sums[..., -1:, :] - sums).to(dtype).exp()
