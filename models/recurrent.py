"""Shared code of mixers with a matrix of state per head: decayed linear attention, the delta rule.

    S <- diag(exp g_t) S,   then for j = 1 ... n:   S <- S + k_tj u_tj^T,   y_t = S^T q_t

u = v, or under the delta rule β (v - S^T k). Shapes: q (B, T, H, K); k, v (B, T, n, H, K); β (B, T,
n, H) or None without correction; log decay g <= 0 (B, T, H, K or 1) or None for 0.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.attention import AttentionMixer
from models.mixer import GenerationState, Mixer, length_mask, without_autocast
from models.packing import PackedRecurrence, Packing


class RecurrentMixer(AttentionMixer):
    """One K x K state per head; the output is normalised, gated by SiLU(W x) if there is a `gate`,
    and projected. State and decays are at least float32. No attention weights to drop.

    Subclasses define `recurrence_inputs`, `scan` and `normed`. `num_householder` is n,
    `uses_delta_rule` whether there is β. `has_kernel`: the class computes exactly the
    recurrence above, so packed tokens take the compiled kernel; not inherited.
    """

    num_householder, uses_delta_rule = 1, False
    decay: Any
    gate: nn.Linear | None

    def recurrence_inputs(self, x: Tensor, qkv: Tensor, positions: Tensor) -> tuple[Any, ...]:
        """q, k, v, β and g of tokens x (..., M, D) at positions (M,), from convolved qkv."""
        raise NotImplementedError

    def scan(self, *given: Any) -> tuple[Tensor, Tensor]:
        """q, k, v, β and g to y (B, T, H, K) and the last state (B, H, K, K)."""
        raise NotImplementedError

    def normed(self, x: Tensor, y: Tensor, qkv: Tensor) -> Tensor:
        """Sums y (..., H, K), normalised."""
        raise NotImplementedError

    def forward(self, x: Tensor, **ends: Any) -> Tensor:
        return self.forward_with_state(x)[0]

    def forward_with_state(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The output of `forward`, and the states after lengths[b] tokens (None: all)."""
        qkv = self.convolution(self.qkv(x))
        positions = torch.arange(x.shape[1], device=x.device)
        q, k, v, beta, log_decay = self.recurrence_inputs(x, qkv, positions)
        if lengths is not None:  # padding writes nothing and forgets nothing
            read = length_mask(lengths, x.shape[1])[..., None, None]  # (B, T, 1, 1)
            k = k * read[..., None]
            log_decay = None if log_decay is None else log_decay * read
        with without_autocast(x):
            y, state = self.scan(q, k, v, beta, log_decay)
        return self.project_out(x, y, qkv), state

    def project_out(self, x: Tensor, y: Tensor, qkv: Tensor) -> Tensor:
        y = self.normed(x, y, qkv).flatten(-2)  # (..., D)
        return self.out(y if self.gate is None else y * F.silu(self.gate(x)))

    def forward_packed(self, x: Tensor, packing: Packing, **ends: Any) -> Tensor:
        if x.dtype == torch.float64 or not vars(type(self)).get("has_kernel"):
            return Mixer.forward_packed(self, x, packing, **ends)
        qkv = self.convolution.forward_packed(self.qkv(x), packing)
        given = self.recurrence_inputs(x, qkv, packing.positions)
        with without_autocast(x):
            y = PackedRecurrence.apply(*given, packing)
        return self.project_out(x, y, qkv)

    def prefill(self, x: Tensor, lengths: Tensor, **ends: Any) -> tuple[Tensor, GenerationState]:
        y, memory = self.forward_with_state(x, lengths)
        tensors = {"memory": memory, **self.convolution.recent(x, lengths, self.qkv)}
        return y, GenerationState(tensors, x.shape[1])

    def step(self, x: Tensor, positions: Tensor, state: GenerationState, **ends: Any) -> Tensor:
        qkv = self.convolution.step(self.qkv(x), state.tensors)
        given = self.recurrence_inputs(x, qkv, positions)
        with without_autocast(x):
            y = recurrence_step(state.tensors["memory"], *given)
        return self.project_out(x, y, qkv)

    def mixing_flops(self, length: int) -> dict[str, int]:
        """Decay, correction, writes and one read of a K x K state per head."""
        state = self.num_heads * self.head_dim**2 * length
        writes = 2 * self.num_householder * state
        return {
            **({} if self.decay is None else {"mixing/state_decay": state}),
            **({"mixing/state_correction": writes} if self.uses_delta_rule else {}),
            "mixing/state_update": writes,
            "mixing/state_read": 2 * state,
        }

    def state_bytes(self, length: int) -> int:
        return 4 * self.num_heads * self.head_dim**2 + self.convolution.state_bytes()


def recurrence_step(
    state: Tensor, q: Tensor, k: Tensor, v: Tensor, beta: Tensor | None, log_decay: Tensor | None
) -> Tensor:
    """One token, shapes as above without T: updates `state` (B, H, K, V), returns y (B, H, V)."""
    if log_decay is not None:
        state.mul_(log_decay.exp()[..., None])
    for j in range(k.shape[1]):
        key, u = k[:, j], v[:, j]
        if beta is not None:
            known = (key[..., None, :] @ state).squeeze(-2)  # (B, H, V)
            u = beta[:, j, :, None] * (u - known)
        state.addcmul_(key[..., None], u[..., None, :])
    return (q[..., None, :] @ state).squeeze(-2)
