"""The gated delta rule with several writes per token: DeltaNet, Gated DeltaNet, DeltaProduct.

A state S (K x V) maps keys to values. Token t scales it by α_t and corrects it n times:

    S <- α_t S,   then for j = 1 ... n:   S <- S + β_tj k_tj (v_tj - S^T k_tj)^T,   y_t = S^T q_t

n = 1, α = 1: DeltaNet (Yang et al. 2024, arXiv 2406.06484, eq. 4); n = 1: Gated DeltaNet (Yang,
Kautz and Hatamizadeh 2025, eq. 10); n > 1: (Gated) DeltaProduct (Siems et al. 2025, eq. 3). Shapes:
q (B, H, T, K); k, v (B, H, T, n, K or V); β (B, H, T, n); log α (B, H, T) or None for 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.attention import AttentionMixer, ShortConvolution, overrides
from models.decayed import RATES, ChunkDecays, HeadDecay, refuse_range
from models.linear import split
from models.mixer import (
    GenerationState,
    Mixer,
    Role,
    check_sizes,
    is_read,
    widened,
    without_autocast,
)
from models.packing import PackedRecurrence, Packing, recurrence_takes

LEAST_NORM = 1e-12  # its square is added to squared key and query norms
# On a CPU the plain recurrence beats chunks up to this width.
WIDEST = 32  # K


class DeltaRule(AttentionMixer):
    """A state per head, corrected towards k -> v at every token.

    num_householder is n: each token multiplies the state by n Householder matrices I - β k k^T.
    negative_eigenvalues lets β reach 2 instead of 1, so that eigenvalues reach -1 (Grazzi et al.
    2025). forget_gate adds Mamba-2's decay with rates in A_range (`HeadDecay`); output_gate
    multiplies the normalised output by SiLU(W x). Projections pass a short convolution with SiLU;
    queries and keys are then divided by their norm, and rotated if position="rope". The layers are
    those of flash-linear-attention, but q is not divided by √K and matrices start Xavier-uniform,
    without a gain, as everywhere here. There are no attention weights to drop.
    """

    def __init__(
        self,
        *sizes: Any,
        num_householder: int = 1,
        negative_eigenvalues: bool = False,
        forget_gate: bool = False,
        A_range: Sequence[float] | None = None,
        output_gate: bool = False,
        convolution: str = "silu",
        convolution_width: int = 4,
        chunk_size: int | None = None,
        **shared: Any,
    ):
        Mixer.__init__(self, *sizes, **shared)  # projections have no bias here
        dim, num_heads = self.dim, self.num_heads
        check_sizes(num_householder=num_householder)
        self.num_householder = num_householder
        self.parts = 1 + 2 * num_householder  # q, then n keys, then n values
        self.largest_beta = 2.0 if negative_eigenvalues else 1.0
        if chunk_size is None:  # 16 writes for heads up to 16 wide, 32 for wider ones
            chunk_size = max(1, (16 if self.head_dim <= 16 else 32) // num_householder)
        check_sizes(chunk_size=chunk_size)
        self.chunk_size = chunk_size
        self.qkv = qkv = nn.Linear(dim, self.parts * dim, bias=False)
        self.convolution = ShortConvolution(self.parts * dim, convolution, convolution_width)
        self.beta = nn.Linear(dim, num_householder * num_heads, bias=False)
        if not forget_gate:
            refuse_range(A_range, "forget_gate=false")
        self.decay = HeadDecay(dim, num_heads, A_range) if forget_gate else None
        self.norm = nn.RMSNorm(self.head_dim, eps=1e-5)
        self.gate = nn.Linear(dim, dim, bias=False) if output_gate else None
        self.out = nn.Linear(dim, dim, bias=False)
        matrices = [*qkv.weight.chunk(self.parts), *self.beta.weight.chunk(num_householder)]
        matrices += [layer.weight for layer in (self.gate, self.out) if layer is not None]
        for matrix in matrices:
            nn.init.xavier_uniform_(matrix)
        self.register_rotary(self.head_dim)

    def parameter_roles(self) -> dict[str, Role]:
        own = {} if self.decay is None else RATES
        beta = Role("hidden", self.num_householder)
        return {**super().parameter_roles(), "beta.weight": beta, **own}

    def forward(self, x: Tensor) -> Tensor:
        return self.finish(x, self.mix(self.qkv(x), self.beta(x), self.log_decay(x))[0])

    def forward_packed(self, x: Tensor, packing: Packing) -> Tensor:
        if overrides(self, "forward_packed", "forward", "finish"):
            return Mixer.forward_packed(self, x, packing)
        qkv, beta, log_decay = self.qkv(x), self.beta(x), self.log_decay(x)
        if recurrence_takes(x, self.head_dim, WIDEST):
            return self.finish(x, self.mix_packed(qkv, beta, log_decay, packing))
        inputs = [qkv, beta, *([] if log_decay is None else [log_decay])]
        return self.finish(x, packing.in_groups(lambda *parts: self.mix(*parts)[0], *inputs))

    def mix_packed(
        self, qkv: Tensor, beta: Tensor, log_decay: Tensor | None, packing: Packing
    ) -> Tensor:
        """`mix` on packed tokens, (N, D)."""
        with without_autocast(qkv):
            convolved = self.convolution.forward_packed(qkv, packing)
            q, k, v = self.directions(convolved, packing.positions)  # (N, 1 or n, H, K)
            decay = None if log_decay is None else log_decay[..., None]  # (N, H, 1)
            strengths = self.strengths(beta)  # (N, n, H)
            y = PackedRecurrence.apply(q.squeeze(1), k, v, strengths, decay, packing)
        return y.flatten(1)  # (N, H, K) -> (N, D)

    def log_decay(self, x: Tensor) -> Tensor | None:
        """log α (..., H) of x (..., D), or None without a forget gate."""
        return None if self.decay is None else self.decay(x)[0].squeeze(-1)

    def mix(
        self,
        qkv: Tensor,
        beta: Tensor,
        log_decay: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The state's output at each token, (B, T, D), and the last state (B, H, K, V).

        qkv (B, T, (1 + 2n) D) and beta (B, T, nH) are projections, log_decay (B, T, H). Only the
        first lengths[b] tokens of a row change the state.
        """
        with without_autocast(qkv):
            at = torch.arange(qkv.shape[1], device=qkv.device)
            q, k, v = self.directions(self.convolution(qkv), at)  # (B, T, 1 or n, H, K)
            beta = self.strengths(beta)  # (B, T, n, H)
            if lengths is not None:
                read = is_read(lengths, qkv.shape[1])[..., None]
                beta = beta * read[..., None]
                log_decay = None if log_decay is None else log_decay * read
            y, state = delta_rule(
                q.squeeze(2).transpose(1, 2),
                k.permute(0, 3, 1, 2, 4),
                v.permute(0, 3, 1, 2, 4),
                beta.permute(0, 3, 1, 2),
                None if log_decay is None else log_decay.transpose(1, 2),
                self.chunk_size,
            )
        return y.transpose(1, 2).flatten(2), state  # (B, H, T, V) -> (B, T, D)

    def directions(self, qkv: Tensor, at: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Convolved projections (..., M, (1 + 2n) D) at positions (M,) to q (..., M, 1, H, K) and
        k, v (..., M, n, H, K); q and k have norm 1 and are rotated under rope."""
        n = self.num_householder
        heads = widened(qkv).unflatten(-1, (self.parts, self.num_heads, self.head_dim))
        directed, v = heads.split([1 + n, n], -3)
        q, k = self.turned(unit(directed), at[:, None, None]).split([1, n], -3)
        return q, k, v

    def strengths(self, beta: Tensor) -> Tensor:
        return self.largest_beta * widened(beta).sigmoid().unflatten(-1, (-1, self.num_heads))

    def finish(self, x: Tensor, y: Tensor) -> Tensor:
        """Normalise each head of y (..., D), gate it by x, project."""
        heads = y.unflatten(-1, (self.num_heads, self.head_dim))
        y = self.norm(heads).flatten(-2).to(x.dtype)
        return self.out(y if self.gate is None else y * F.silu(self.gate(x)))

    def prefill(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, GenerationState]:
        y, memory = self.mix(self.qkv(x), self.beta(x), self.log_decay(x), lengths)
        tensors = {"memory": memory, **self.convolution.recent(x, lengths, self.qkv)}
        return self.finish(x, y), GenerationState(tensors, lengths, x.shape[1])

    def step(self, x: Tensor, positions: Tensor, state: GenerationState) -> Tensor:
        state.advance(positions)
        qkv = self.convolution.step(self.qkv(x), state.tensors)
        beta, log_decay = self.strengths(self.beta(x)), self.log_decay(x)  # (B, n, H), (B, H)
        with without_autocast(x):
            q, k, v = self.directions(qkv, positions)  # (B, 1 or n, H, K)
            y = delta_rule_step(
                state.tensors["memory"],
                q.squeeze(1),
                k.transpose(1, 2),
                v.transpose(1, 2),
                beta.transpose(1, 2),
                log_decay,
            )
        return self.finish(x, y.flatten(1))

    def mixing_flops(self, length: int) -> dict[str, int]:
        """Each write reads and updates a K x V state, then the query reads it, whatever the
        implementation."""
        state = self.num_heads * self.head_dim**2 * length
        return {
            "mixing/state_correction": 2 * self.num_householder * state,
            "mixing/state_update": 2 * self.num_householder * state,
            "mixing/state_read": 2 * state,
            **({} if self.decay is None else {"mixing/state_decay": state}),
        }

    def flops(self, length: int) -> dict[str, int]:
        terms = super().flops(length)
        terms["linear/attention_beta"] = 2 * self.beta.weight.numel() * length
        if self.gate is not None:
            terms["linear/attention_gate"] = 2 * self.dim**2 * length
        return terms if self.decay is None else {**terms, **self.decay.flops(length)}

    def state_bytes(self, length: int) -> int:
        return 4 * self.num_heads * self.head_dim**2 + self.convolution.state_bytes()


def delta_rule_step(
    state: Tensor, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_decay: Tensor | None
) -> Tensor:
    """One token: updates `state` (B, H, K, V) in place and returns y (B, H, V). Other shapes as
    above, without T."""
    if log_decay is not None:
        state *= log_decay.exp()[..., None, None]
    for key, value, strength in zip(k.unbind(2), v.unbind(2), beta.unbind(2), strict=True):
        known = (key[..., None, :] @ state).squeeze(-2)  # (B, H, V)
        correction = strength[..., None] * (value - known)
        state.addcmul_(key[..., None], correction[..., None, :])
    return (q[..., None, :] @ state).squeeze(-2)


def delta_rule(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_decay: Tensor | None, chunk_size: int
) -> tuple[Tensor, Tensor]:
    """All tokens from an empty state in O(T): y (B, H, T, V) and the last state (B, H, K, V).

    In a chunk of C tokens that starts from S_0, write i leaves a_i k_i u_i^T at the chunk's end,
    u_i = β_i (v_i - a_i S_0^T k_i - Σ_{j<i} a_ij (k_i·k_j) u_j), with decays a (`ChunkDecays`). So
    u = U - W S_0, where U and W solve a unit triangular system for β v and β a k: the WY form of
    Yang et al. (2024), section 3.2. All chunks are solved at once, by substitution: powers of the
    nilpotent part would cancel numbers of size 3^C where keys repeat.
    """
    batch, heads, length, writes, width = k.shape
    size = min(chunk_size, length)
    q, k, v = chunks(q, size), chunks(k, size).flatten(1, 2), chunks(v, size).flatten(1, 2)
    beta = chunks(beta, size).reshape(len(k), -1, 1)  # (M, Cn, 1), M = B H N
    leaving, reading = k, k * beta  # (M, Cn, K) each
    overlaps, scores = reading @ k.mT, q @ k.mT  # (M, Cn, Cn), (M, C, Cn)
    kept = torch.eye(width, dtype=k.dtype, device=k.device)
    if log_decay is not None:
        decay = ChunkDecays(chunks(log_decay, size), writes)
        overlaps, scores = overlaps * decay.to_writes, scores * decay.to_queries
        q, reading = q * decay.queries_from_start, reading * decay.writes_from_start
        leaving, kept = k * decay.to_end, kept * decay.whole
    solved = torch.linalg.solve_triangular(
        overlaps, torch.cat((v * beta, reading), -1), upper=False, unitriangular=True
    )
    u, w = solved.split([v.shape[-1], width], -1)  # (M, Cn, V), (M, Cn, K)
    factors = (kept - leaving.mT @ w).unflatten(0, (batch * heads, -1))  # (B H, N, K, K)
    addends = (leaving.mT @ u).unflatten(0, (batch * heads, -1))  # (B H, N, K, V)
    states, last = scan(factors, addends)
    seen = scores * visible(size, writes, scores)
    y = q @ states + seen @ torch.baddbmm(u, w, states, alpha=-1)  # (M, C, V)
    y = y.reshape(batch, heads, -1, v.shape[-1])[:, :, :length]
    return y, last.unflatten(0, (batch, heads))


def chunks(x: Tensor, size: int) -> Tensor:
    """(B, H, T, ...) to (M, size, ...), M = B H N, zero-padded."""
    return split(x, size).flatten(0, 2)


def visible(size: int, writes: int, like: Tensor) -> Tensor:
    """(C, Cn): 1 where the query of a token sees a write, 0 where the write is later."""
    ones = torch.ones(size, size, dtype=like.dtype, device=like.device)
    return ones.tril().repeat_interleave(writes, 1)


def scan(factors: Tensor, addends: Tensor) -> tuple[Tensor, Tensor]:
    """States before each chunk, (G N, K, V), and after the last, (G, K, V), of S <- A_n S + B_n
    from S = 0; factors A (G, N, K, K), addends B (G, N, K, V)."""
    states = [torch.zeros_like(addends[:, 0])]
    for factor, addend in zip(factors.unbind(1), addends.unbind(1), strict=True):
        states.append(torch.baddbmm(addend, factor, states[-1]))
    return torch.stack(states[:-1], 1).flatten(0, 1), states[-1]


def unit(x: Tensor) -> Tensor:
    """x (..., K) over its norm; 1.5 times as fast as `F.normalize` on a CPU."""
    return x * (x.square().sum(-1, keepdim=True) + LEAST_NORM**2).rsqrt()
