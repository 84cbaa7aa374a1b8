"""How fast heads forget: the three decays of `models.decayed`.

Each maps x (..., D) to the logarithm of the decay, at most 0, (..., H, K) or (..., H, 1), and to
what values are multiplied by before they are written, (..., H, 1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from common import UserError
from models.initialisation import xavier_uniform
from models.mixer import check_choice
from models.precision import widened, without_autocast
from models.roles import Role


class FixedDecay(nn.Module):
    """γ_h = 1 - 2^(-5 - h) for head h = 0, 1, ...

    RetNet, Sun et al. 2023, arXiv 2307.08621, eq. 8.
    """

    def __init__(self, dim: int, num_heads: int):
        super().__init__()
        self.num_heads = num_heads

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x (..., D) to log γ and 1, (..., H, 1) each."""
        heads = torch.arange(self.num_heads, device=x.device, dtype=widened(x).dtype)
        log_decay = torch.log1p(-torch.exp2(-5 - heads))[:, None]  # (H, 1)
        log_decay = log_decay.expand(*x.shape[:-1], -1, -1)
        return log_decay, torch.ones_like(log_decay)

    def flops(self, length: int) -> dict[str, int]:
        """Nothing is computed."""
        return {}

    def parameter_roles(self) -> dict[str, Role]:
        """There are no parameters."""
        return {}


class ChannelDecay(nn.Module):
    """α_t = σ(W_2 W_1 x_t + b)^(1/τ) for every channel of a head's keys, τ = 16.

    W_1 has 16 rows. Gated linear attention, Yang et al. 2023, arXiv 2312.06635, section 4.
    """

    RANK, TEMPERATURE = 16, 16.0

    def __init__(self, dim: int, num_heads: int):
        super().__init__()
        self.dim, self.num_heads = dim, num_heads
        self.down = nn.Linear(dim, self.RANK, bias=False)
        self.up = nn.Linear(self.RANK, dim)
        xavier_uniform(self)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x (..., D) to log α (..., H, K) and 1 (..., H, 1)."""
        gate = self.up(self.down(x)).unflatten(-1, (self.num_heads, -1))
        log_decay = F.logsigmoid(widened(gate)) / self.TEMPERATURE
        return log_decay, torch.ones_like(log_decay[..., :1])

    def flops(self, length: int) -> dict[str, int]:
        """Of the two matrices."""
        return {"linear/decay": 2 * 2 * self.dim * self.RANK * length}

    def parameter_roles(self) -> dict[str, Role]:
        """Two plain matrices and a bias."""
        return {}


class HeadDecay(nn.Module):
    """a_t = exp(-Δ_t exp(A_log)) for every head; values are written times Δ_t.

    Δ_t = softplus(W x_t + b). Mamba-2, Dao and Gu 2024, arXiv 2405.21060, section 7. Initial
    values as in their code: W that of `nn.Linear`, exp(A_log) uniform in A_range, softplus(b)
    log-uniform in [0.001, 0.1]. A_range is [1, 16] there, [0, 16] in Gated DeltaNet (Yang, Kautz
    and Hatamizadeh 2025). W is not Xavier-uniform: with its few rows W x_t would vary by 1.3
    instead of 0.6, which shortens memory to about half.
    """

    def __init__(self, dim: int, num_heads: int, A_range: Sequence[float] | None):
        super().__init__()
        self.dim, self.num_heads = dim, num_heads
        low, high = checked_range(A_range)
        self.dt = nn.Linear(dim, num_heads)
        rates = high - (high - low) * torch.rand(num_heads)  # above low: 0 has no logarithm
        self.A_log = nn.Parameter(rates.log())
        with torch.no_grad():
            dt = torch.empty(num_heads).uniform_(math.log(1e-3), math.log(1e-1)).exp()
            self.dt.bias.copy_(dt + torch.log(-torch.expm1(-dt)))  # softplus of it is dt

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x (..., D) to log a and Δ, (..., H, 1) each."""
        dt = F.softplus(widened(self.dt(x)))[..., None]
        with without_autocast(x):
            return -self.A_log.exp()[:, None] * dt, dt

    def flops(self, length: int) -> dict[str, int]:
        """Of the matrix."""
        return {"linear/decay": 2 * self.dim * self.num_heads * length}

    def parameter_roles(self) -> dict[str, Role]:
        """The rates do not decay, as in Mamba."""
        exempt = Role("vector", decays=False)
        return {"A_log": exempt, "dt.bias": exempt}


def checked_range(A_range: Sequence[float] | None) -> tuple[float, float]:
    """A_range as two numbers; UserError unless 0 <= low < high."""
    if A_range is None:
        raise UserError(
            "A_range=null: expected [low, high] for a decay of one gate a head, as [1, 16]"
        )
    try:
        low, high = map(float, A_range)
        if 0 <= low < high < math.inf:
            return low, high
    except (TypeError, ValueError):
        pass
    raise UserError(f"A_range={A_range}: expected [low, high] with 0 <= low < high, as [1, 16]")


Decay = FixedDecay | ChannelDecay | HeadDecay


def decay_of(kind: str, dim: int, num_heads: int, A_range: Sequence[float] | None) -> Decay:
    """The decay "fixed", "channel" or "head"; A_range is for the last alone, which needs it."""
    check_choice("decay", kind, ("fixed", "channel", "head"))
    if kind == "head":
        return HeadDecay(dim, num_heads, A_range)
    refuse_range(A_range, f"decay={kind}")
    return FixedDecay(dim, num_heads) if kind == "fixed" else ChannelDecay(dim, num_heads)


def refuse_range(A_range: Sequence[float] | None, where: str) -> None:
    """Raise UserError where an A_range is given to what has no use for it."""
    if A_range is not None:
        raise UserError(f"A_range={A_range}: {where} draws no rates; leave A_range out")
