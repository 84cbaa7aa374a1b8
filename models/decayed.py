"""Linear attention that forgets: RetNet, gated linear attention (GLA), the core of Mamba-2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.attention import AttentionMixer, overrides
from models.decayed_sums import decayed_sums
from models.decays import ChannelDecay, Decay, decay_of
from models.initialisation import xavier_uniform
from models.mixer import GenerationState, Mixer
from models.packing import Packing
from models.precision import widened, without_autocast
from models.recurrences import PackedRecurrence, runs
from models.roles import Role

# K up to which the plain recurrence takes less time than chunks on a CPU: with one decay a head,
# whose chunks are masked products, and with one a channel, whose chunks are joined from blocks.
WIDEST, WIDEST_BY_CHANNEL = 16, 64


class DecayedAttention(AttentionMixer):
    """S_t = diag(α_t) S_{t-1} + Δ_t k_t v_t^T, y_t = S_t^T q_t in every head.

    decay="fixed": α a constant of each head (RetNet, Sun et al. 2023, arXiv 2307.08621, eq. 6);
    "channel": a gate for every channel of a head's keys (GLA, Yang et al. 2023, arXiv 2312.06635,
    section 4); "head": one gate a head (Mamba-2's SSD, Dao and Gu 2024, arXiv 2405.21060,
    section 7; A_range as in `HeadDecay`), with v_t times a gain per head added to y_t ("D" there).
    `models.decays` has their formulas. Then RMSNorm per head, which takes out any scale that is
    large beside its epsilon, so that q is not divided by √K; with output_gate times SiLU(W_g x_t)
    (RetNet eq. 8); then the output projection. Attention dropout does not apply. State and decays
    are at least in float32.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        max_len: int,
        dropout: float = 0.0,
        position: str = "none",
        decay: str = "fixed",
        A_range: Sequence[float] | None = None,
        output_gate: bool = True,
        **convolution: Any,
    ):
        super().__init__(dim, num_heads, max_len, dropout, position, **convolution)
        self.decay: Decay = decay_of(decay, dim, num_heads, A_range)
        self.gain = nn.Parameter(torch.ones(num_heads, self.head_dim))
        self.skip = nn.Parameter(torch.ones(num_heads, 1)) if decay == "head" else None
        self.gate = nn.Linear(dim, dim) if output_gate else None
        if self.gate is not None:
            xavier_uniform(self.gate)

    def parameter_roles(self) -> dict[str, Role]:
        """Those of the projections and of the decay; the gain of v does not decay."""
        roles = super().parameter_roles()
        roles |= {f"decay.{name}": role for name, role in self.decay.parameter_roles().items()}
        return roles if self.skip is None else roles | {"skip": Role("vector", decays=False)}

    def forward(self, x: Tensor) -> Tensor:
        """Mix x (B, T, D) into (B, T, D)."""
        return self.read(x, None)[0]

    def forward_packed(self, x: Tensor, packing: Packing) -> Tensor:
        """As `Mixer.forward_packed`, on a CPU by the plain recurrence where it is quicker."""
        widest = WIDEST_BY_CHANNEL if isinstance(self.decay, ChannelDecay) else WIDEST
        own = not overrides(self, DecayedAttention, "forward", "read", "finish")
        if not own or not runs(x, self.head_dim, widest):
            return Mixer.forward_packed(self, x, packing)
        projected = self.convolution.forward_packed(self.qkv(x), packing)  # (N, 3D)
        q, k, v = projected.unflatten(-1, (3, self.num_heads, -1)).unbind(1)  # (N, H, K)
        log_decay, dt = self.decay(x)  # (N, H, K or 1)
        with without_autocast(x):
            q, k = (self.apply_rotary_step(widened(part), packing.positions) for part in (q, k))
            written = (widened(v) * dt)[:, None]
            y = PackedRecurrence.apply(q, k[:, None], written, None, log_decay, packing)
        return self.finish(x, y, v)

    def read(self, x: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        """What `forward` returns, and the states (B, H, K, K) after lengths[b] tokens, or all."""
        q, k, v = self.project(x)  # (B, H, T, K)
        log_decay, dt = (part.transpose(1, 2) for part in self.decay(x))  # (B, H, T, K or 1)
        with without_autocast(x):
            q, k = self.apply_rotary(widened(q)), self.apply_rotary(widened(k))
            written = widened(v) * dt
            if lengths is not None:  # padding writes nothing and forgets nothing
                real = torch.arange(x.shape[1], device=x.device) < lengths[:, None]  # (B, T)
                k, log_decay = (part * real[:, None, :, None] for part in (k, log_decay))
            y, state = decayed_sums(q, k, written, log_decay)
        y, v = y.transpose(1, 2), v.transpose(1, 2)  # (B, T, H, K)
        return self.finish(x, y, v), state

    def finish(self, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
        """From x (..., D), sums y and values v (..., H, K) to the output (..., D)."""
        with without_autocast(x):
            y = y if self.skip is None else y + self.skip * widened(v)
            y = F.rms_norm(y, y.shape[-1:], eps=1e-5) * self.gain
        y = y.flatten(-2).to(v.dtype)  # (..., D)
        return self.out(y if self.gate is None else y * F.silu(self.gate(x)))

    def prefill(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, GenerationState]:
        """As `Mixer.prefill`; the state is S (B, H, K, K)."""
        y, sums = self.read(x, lengths)
        tensors = {"sums": sums, **self.recent(x, lengths)}
        return y, GenerationState(tensors, lengths, x.shape[1])

    def step(self, x: Tensor, positions: Tensor, state: GenerationState) -> Tensor:
        """As `Mixer.step`; one turn of the recurrence."""
        q, k, v = self.project_step(x, state.tensors)  # (B, H, K)
        state.advance(positions)
        log_decay, dt = self.decay(x)  # (B, H, K or 1)
        sums = state.tensors["sums"]  # (B, H, K, K)
        with without_autocast(x):
            q, k = (self.apply_rotary_step(widened(part), positions) for part in (q, k))
            sums.mul_(log_decay.exp()[..., None])
            sums.addcmul_(k[..., None], (widened(v) * dt)[..., None, :])
            y = (q[..., None, :] @ sums).squeeze(-2)
        return self.finish(x, y, v)

    def mixing_flops(self, length: int) -> dict[str, int]:
        """Per token and head a K x K state decays, is written into and is read.

        That is the recurrence, however it is computed; the decay is 1 a number, not a product.
        """
        state = self.num_heads * self.head_dim**2 * length
        return {
            "mixing/state_decay": state,
            "mixing/state_update": 2 * state,
            "mixing/state_read": 2 * state,
        }

    def flops(self, length: int) -> dict[str, int]:
        """As `AttentionMixer.flops`, with the matrices of decay and gate."""
        gate = {} if self.gate is None else {"linear/output_gate": 2 * self.dim**2 * length}
        return {**super().flops(length), **self.decay.flops(length), **gate}

    def state_bytes(self, length: int) -> int:
        """H states of K x K float32 numbers, whatever the length, and the convolution's."""
        return 4 * self.num_heads * self.head_dim**2 + self.convolution.state_bytes()
