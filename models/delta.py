"""The gated delta rule with several writes per token: DeltaNet, Gated DeltaNet, DeltaProduct.

A state S (K x V) maps keys to values. Token t scales it by α_t and corrects it n times:

    S <- α_t S,   then for j = 1 ... n:   S <- S + β_tj k_tj (v_tj - S^T k_tj)^T,   y_t = S^T q_t

n = 1, α = 1: DeltaNet (Yang et al. 2024, arXiv 2406.06484, eq. 4); n = 1: Gated DeltaNet (Yang,
Kautz and Hatamizadeh 2025, eq. 10); n > 1: (Gated) DeltaProduct (Siems et al. 2025, eq. 3). Shapes:
q (B, H, T, K); k, v (B, H, T, n, K or V); β (B, H, T, n); log α (B, H, T) or None for 1.
"""

from typing import Any

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from models.attention import Convolution, ShortConvolution, Width
from models.decayed import DECAY_ROLES, HeadDecay, Range, chunk_decays
from models.linear import split
from models.mixer import Mixer, Role, upcast, xavier_uniform
from models.recurrent import RecurrentMixer

LEAST_NORM = 1e-12  # its square is added to squared key and query norms


class DeltaRule(RecurrentMixer):
    """A state per head, corrected towards k -> v at every token.

    num_householder is n: each token multiplies the state by n Householder matrices I - β k k^T.
    negative_eigenvalues lets β reach 2 instead of 1, so that eigenvalues reach -1 (Grazzi et al.
    2025). forget_gate adds Mamba-2's decay, its rates drawn from A_range (`HeadDecay`); output_gate
    multiplies the normalised output by SiLU(W x). Projections pass a short convolution with SiLU;
    queries and keys are then divided by their norm, and rotated if position="rope". The layers are
    those of flash-linear-attention, but q is not divided by √K and matrices start Xavier-uniform,
    without a gain, as everywhere here.
    """

    uses_delta_rule, has_kernel = True, True

    def __init__(
        self,
        *sizes: Any,
        num_householder: PositiveInt = 1,
        negative_eigenvalues: bool = False,
        forget_gate: bool = False,
        A_range: Range = (0, 16),
        output_gate: bool = False,
        convolution: Convolution = "silu",
        convolution_width: Width = 4,
        chunk_size: PositiveInt | None = None,
        **shared: Any,
    ):
        Mixer.__init__(self, *sizes, **shared)  # projections have no bias here
        dim, num_heads = self.dim, self.num_heads
        self.num_householder = num_householder
        self.parts = 1 + 2 * num_householder  # q, then n keys, then n values
        self.largest_beta = 2.0 if negative_eigenvalues else 1.0
        if chunk_size is None:  # 16 writes for heads up to 16 wide, 32 for wider ones
            chunk_size = max(1, (16 if self.head_dim <= 16 else 32) // num_householder)
        self.chunk_size = chunk_size
        self.qkv = qkv = nn.Linear(dim, self.parts * dim, bias=False)
        self.convolution = ShortConvolution(self.parts * dim, convolution, convolution_width)
        self.beta = nn.Linear(dim, num_householder * num_heads, bias=False)
        self.decay = HeadDecay(dim, num_heads, A_range) if forget_gate else None
        self.norm = nn.RMSNorm(self.head_dim, eps=1e-5)
        self.gate = nn.Linear(dim, dim, bias=False) if output_gate else None
        self.out = nn.Linear(dim, dim, bias=False)
        xavier_uniform(qkv, self.parts)
        xavier_uniform(self.beta, num_householder)
        for layer in (self.gate, self.out):
            if layer is not None:
                xavier_uniform(layer)
        self.register_rotary(self.head_dim)

    def parameter_roles(self) -> dict[str, Role]:
        own = {} if self.decay is None else DECAY_ROLES
        beta = Role("hidden", self.num_householder)
        return {**super().parameter_roles(), "beta.weight": beta, **own}

    def recurrence_inputs(self, x: Tensor, qkv: Tensor, positions: Tensor) -> tuple[Any, ...]:
        """q and k have norm 1 and are rotated under rope."""
        n = self.num_householder
        heads = upcast(qkv).unflatten(-1, (self.parts, self.num_heads, -1))  # (..., 1 + 2n, H, K)
        q_and_keys, v = heads.split([1 + n, n], -3)  # (..., 1 + n, H, K), (..., n, H, K)
        q_and_keys = self.apply_rotary(unit(q_and_keys), positions[:, None, None])
        q, k = q_and_keys.split([1, n], -3)
        beta = upcast(self.beta(x)).sigmoid().unflatten(-1, (n, self.num_heads))  # (..., n, H)
        log_decay = None if self.decay is None else self.decay(x)[0]
        return q.squeeze(-3), k, v, self.largest_beta * beta, log_decay

    def scan(
        self, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_decay: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        q, k, v = (x.movedim(-2, 1) for x in (q, k, v))  # heads before tokens
        g = None if log_decay is None else log_decay.squeeze(-1).transpose(1, 2)
        y, state = delta_rule(q, k, v, beta.movedim(-1, 1), g, self.chunk_size)
        return y.transpose(1, 2), state

    def normed(self, x: Tensor, y: Tensor, qkv: Tensor) -> Tensor:
        return self.norm(y).to(x.dtype)


def delta_rule(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_decay: Tensor | None, chunk_size: int
) -> tuple[Tensor, Tensor]:
    """All tokens from an empty state in O(T): y (B, H, T, V) and the last state (B, H, K, V).

    In a chunk of C tokens from S_0 on, write i leaves b_i k_i u_i^T at its end, with
    u_i = β_i (v_i - a_i S_0^T k_i - Σ_{j<i} a_ij (k_i·k_j) u_j) and decays a from S_0 or j to i, b
    to the end. So u = U - W S_0; U and W solve a unit triangular system for β v and β a k: the
    WY form of Yang et al. (2024), section 3.2. All chunks are solved at once, by substitution:
    powers of the nilpotent part cancel catastrophically (terms of size 3^C) where keys repeat.
    """
    batch, heads, length, writes, width = k.shape
    size = min(chunk_size, length)
    q, k, v = chunks(q, size), chunks(k, size).flatten(1, 2), chunks(v, size).flatten(1, 2)
    beta = chunks(beta, size).reshape(len(k), -1, 1)  # (M, Cn, 1), M = B H N
    leaving, reading = k, k * beta  # (M, Cn, K) each
    overlaps, scores = reading @ k.mT, q @ k.mT  # (M, Cn, Cn), (M, C, Cn)
    kept = torch.eye(width, dtype=k.dtype, device=k.device)
    if log_decay is not None:
        between, from_start, to_end = chunk_decays(chunks(log_decay, size)[..., None])
        to_queries = between.squeeze(-1).repeat_interleave(writes, 2)  # (M, C, Cn)
        scores, overlaps = scores * to_queries, overlaps * to_queries.repeat_interleave(writes, 1)
        q, reading = q * from_start, reading * from_start.repeat_interleave(writes, 1)
        leaving, kept = k * to_end.repeat_interleave(writes, 1), kept * from_start[:, -1:]
    solved = torch.linalg.solve_triangular(
        overlaps, torch.cat((v * beta, reading), -1), upper=False, unitriangular=True
    )
    u, w = solved.split([v.shape[-1], width], -1)  # (M, Cn, V), (M, Cn, K)
    factors = (kept - leaving.mT @ w).unflatten(0, (batch * heads, -1))  # (B H, N, K, K)
    addends = (leaving.mT @ u).unflatten(0, (batch * heads, -1))  # (B H, N, K, V)
    states, last = chunk_states(factors, addends)
    past = torch.ones(size, size, dtype=q.dtype, device=q.device).tril()
    seen = scores * past.repeat_interleave(writes, 1)  # writes up to the query's token
    y = q @ states + seen @ torch.baddbmm(u, w, states, alpha=-1)  # (M, C, V)
    y = y.reshape(batch, heads, -1, v.shape[-1])[:, :, :length]
    return y, last.unflatten(0, (batch, heads))


def chunks(x: Tensor, size: int) -> Tensor:
    """(B, H, T, ...) to (M, size, ...), M = B H N, zero-padded."""
    return split(x, size).flatten(0, 2)


def chunk_states(factors: Tensor, addends: Tensor) -> tuple[Tensor, Tensor]:
    """States before each chunk, (G N, K, V), and after the last, (G, K, V), of S <- A_n S + B_n
    from S = 0; factors A (G, N, K, K), addends B (G, N, K, V)."""
    states = [torch.zeros_like(addends[:, 0])]
    for factor, addend in zip(factors.unbind(1), addends.unbind(1), strict=True):
        states.append(torch.baddbmm(addend, factor, states[-1]))
    return torch.stack(states[:-1], 1).flatten(0, 1), states[-1]


def unit(x: Tensor) -> Tensor:
    """x (..., K) over its norm; 1.5 times as fast as `F.normalize` on a CPU."""
    return x * (x.square().sum(-1, keepdim=True) + LEAST_NORM**2).rsqrt()
