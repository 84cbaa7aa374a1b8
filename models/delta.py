"""The delta rule: DeltaNet, Gated DeltaNet and DeltaProduct, one class with their options."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from errors import UserError
from models.attention import overrides
from models.delta_rule import delta_rule, delta_rule_step
from models.mixer import GenerationState, Mixer, check_sizes
from models.packing import Packing
from models.positions import rotary_table, rotate
from models.precision import widened, without_autocast
from models.roles import Role
from models.short_convolution import ShortConvolution

LEAST_NORM = 1e-6  # added, squared, to the squared norm of a key or query
DECAY_RATES = (1.0, 16.0)  # Mamba-2's A, from which Gated DeltaNet's decays start
STEP_SIZES = (1e-3, 0.1)  # and its Δ


class DeltaRule(Mixer):
    """A state per head that is corrected towards k -> v at every token (`models.delta_rule`).

    num_householder n writes a token, so that the state is multiplied by n Householder matrices
    I - β k k^T; negative_eigenvalues lets β reach 2 instead of 1, and with it their eigenvalues
    -1 instead of 0 (Grazzi et al. 2025); forget_gate scales the state at every token; output_gate
    multiplies the normalised output by SiLU(W x). Queries and keys have norm 1 and, like values,
    go through a short convolution with SiLU. Parameters as in flash-linear-attention's layers,
    but every weight matrix starts Xavier-uniform by itself, as in the other mixers here.
    With position="rope" queries and keys are turned after they are normalised. There are no
    attention weights to drop.
    """

    rotary: Tensor

    def __init__(
        self,
        dim: int,
        num_heads: int,
        max_len: int,
        dropout: float = 0.0,
        position: str = "none",
        num_householder: int = 1,
        negative_eigenvalues: bool = False,
        forget_gate: bool = False,
        output_gate: bool = False,
        convolution: str = "silu",
        convolution_width: int = 4,
        chunk_size: int | None = None,
    ):
        super().__init__(dim, num_heads, max_len, dropout, position)
        check_sizes(num_householder=num_householder)
        self.writes, self.forgets = num_householder, forget_gate
        self.parts = 1 + 2 * num_householder  # q, then n keys, then n values
        self.largest_beta = 2.0 if negative_eigenvalues else 1.0
        self.chunk_size = chunk_size or default_chunk_size(self.head_dim, num_householder)
        check_sizes(chunk_size=self.chunk_size)
        self.qkv = nn.Linear(dim, self.parts * dim, bias=False)
        self.convolution = ShortConvolution(self.parts * dim, convolution, convolution_width)
        self.gates = nn.Linear(dim, (num_householder + forget_gate) * num_heads, bias=False)
        self.norm = nn.RMSNorm(self.head_dim, eps=1e-5)
        self.output_gate = nn.Linear(dim, dim, bias=False) if output_gate else None
        self.out = nn.Linear(dim, dim, bias=False)
        for matrix in self.qkv.weight.chunk(self.parts):
            nn.init.xavier_uniform_(matrix)
        for layer in filter(None, (self.gates, self.output_gate, self.out)):
            nn.init.xavier_uniform_(layer.weight)
        if forget_gate:
            self.log_rate, self.step_bias = initial_decays(num_heads)
        if position == "rope":
            if self.head_dim % 2:
                raise UserError(f"position=rope needs an even head_dim, not {self.head_dim}")
            self.register_buffer("rotary", rotary_table(max_len, self.head_dim), persistent=False)

    def parameter_roles(self) -> dict[str, Role]:
        """q, n keys and n values are matrices of their own; gates read few numbers, as heads do."""
        roles = {"qkv.weight": Role("hidden", self.parts), "gates.weight": Role("head")}
        if self.forgets:
            roles |= dict.fromkeys(("log_rate", "step_bias"), Role("vector", decays=False))
        return roles

    def forward(self, x: Tensor) -> Tensor:
        """Mix x (B, T, D) into (B, T, D)."""
        return self.merge(x, self.mix(self.qkv(x), self.gates(x))[0])

    def forward_packed(self, x: Tensor, packing: Packing) -> Tensor:
        """As `Mixer.forward_packed`, the projections without padding."""
        if overrides(self, DeltaRule, "forward", "merge"):
            return super().forward_packed(x, packing)
        qkv, gates = self.qkv(x), self.gates(x)
        mixed = [g.unpad(self.mix(g.pad(qkv), g.pad(gates))[0]) for g in packing.groups]
        return self.merge(x, packing.join(mixed))

    def mix(
        self, qkv: Tensor, gates: Tensor, lengths: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """What the state gives at each token, (B, T, D), and the last state (B, H, K, V).

        qkv (B, T, (1 + 2n) D) and gates (B, T, nH or (n + 1) H) are the projections; only the
        first lengths[b] tokens of each row change the state.
        """
        with without_autocast(qkv):
            q, k, v = self.directions(self.convolution(qkv))  # (B, T, 1 or n, H, K)
            beta, log_decay = self.strengths(gates)  # (B, T, n, H), (B, T, H)
            if self.position == "rope":
                cos, sin = self.rotary[:, : qkv.shape[1], None, None]  # (T, 1, 1, K / 2) each
                q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            if lengths is not None:
                real = torch.arange(qkv.shape[1], device=qkv.device) < lengths[:, None]  # (B, T)
                beta = beta * real[..., None, None]
                log_decay = None if log_decay is None else log_decay * real[..., None]
            y, state = delta_rule(
                q.squeeze(2).transpose(1, 2),
                *(x.permute(0, 3, 1, 2, 4) for x in (k, v)),
                beta.permute(0, 3, 1, 2),
                None if log_decay is None else log_decay.transpose(1, 2),
                self.chunk_size,
            )
        return y.transpose(1, 2).flatten(2), state  # (B, H, T, V) -> (B, T, D)

    def directions(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of convolved projections (..., (1 + 2n) D): q (..., 1, H, K), k, v (..., n, H, K)."""
        heads = widened(qkv).unflatten(-1, (self.parts, self.num_heads, self.head_dim))
        directed, v = heads.split([1 + self.writes, self.writes], -3)
        q, k = unit(directed).split([1, self.writes], -3)
        return q, k, v

    def strengths(self, gates: Tensor) -> tuple[Tensor, Tensor | None]:
        """β (..., n, H) and log α (..., H) of projections (..., nH or (n + 1) H).

        α = exp(-e^A softplus(a + b)), as in Mamba-2, A `log_rate` and b `step_bias`.
        """
        split = widened(gates).unflatten(-1, (-1, self.num_heads))  # (..., n or n + 1, H)
        beta = self.largest_beta * split[..., : self.writes, :].sigmoid()
        if not self.forgets:
            return beta, None
        steps = F.softplus(split[..., -1, :] + self.step_bias)
        return beta, -self.log_rate.exp() * steps

    def merge(self, x: Tensor, y: Tensor) -> Tensor:
        """Norm of each head of y (..., D), gate from the input x, projection of the output."""
        heads = y.unflatten(-1, (self.num_heads, self.head_dim))
        y = self.norm(heads).flatten(-2).to(x.dtype)
        if self.output_gate is not None:
            y = y * F.silu(self.output_gate(x))
        return self.out(y)

    def prefill(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, GenerationState]:
        """As `Mixer.prefill`; the state is S (B, H, K, V) and what the convolution remembers."""
        qkv = self.qkv(x)
        y, memory = self.mix(qkv, self.gates(x), lengths)
        tensors = {"memory": memory, **self.convolution.recent(x, lengths, self.qkv)}
        return self.merge(x, y), GenerationState(tensors, lengths, x.shape[1])

    def step(self, x: Tensor, positions: Tensor, state: GenerationState) -> Tensor:
        """As `Mixer.step`; n writes to the state, and one read."""
        state.advance(positions)
        with without_autocast(x):
            q, k, v = self.directions(self.convolution.step(self.qkv(x), state.tensors))
            beta, log_decay = self.strengths(self.gates(x))  # (B, n, H), (B, H)
            if self.position == "rope":
                cos, sin = self.rotary[:, positions, None, None]  # (B, 1, 1, K / 2) each
                q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            y = delta_rule_step(
                state.tensors["memory"],
                q.squeeze(1),
                k.transpose(1, 2),
                v.transpose(1, 2),
                beta.transpose(1, 2),
                log_decay,
            )
        return self.merge(x, y.flatten(1))

    def flops(self, length: int) -> dict[str, int]:
        """The recurrence: each write reads and updates a K x V state, then the query reads it.

        The chunked form does more, as that of linear attention does: what a mixer costs does not
        depend on how long its chunks are. Left out: norms, activations, rotations.
        """
        state = self.num_heads * self.head_dim**2
        terms = {
            "linear/attention_qkv": 2 * self.parts * self.dim**2,
            "linear/attention_gates": 2 * self.gates.weight.numel(),
            "linear/attention_out": 2 * self.dim**2,
            "mixing/state_correction": 2 * self.writes * state,
            "mixing/state_update": 2 * self.writes * state,
            "mixing/state_read": 2 * state,
        }
        if self.forgets:
            terms["mixing/state_decay"] = state
        if self.output_gate is not None:
            terms["linear/attention_output_gate"] = 2 * self.dim**2
        counted = {name: count * length for name, count in terms.items()}
        return {**counted, **self.convolution.flops(length)}

    def step_flops(self, position: int) -> int:
        """FLOPs of one `step`, the same at every position."""
        return sum(self.flops(1).values())

    def state_bytes(self, length: int) -> int:
        """H states of K x V float32 numbers and the convolution's, whatever the length."""
        return 4 * self.num_heads * self.head_dim**2 + self.convolution.state_bytes()


def unit(x: Tensor) -> Tensor:
    """x (..., K) divided by its norm; in two thirds of the time of `F.normalize` on a CPU."""
    return x * (x.square().sum(-1, keepdim=True) + LEAST_NORM**2).rsqrt()


def default_chunk_size(head_dim: int, writes: int) -> int:
    """Tokens a chunk: 16 writes for heads up to 16 wide, 32 for wider ones.

    Forward and backward on a CPU, batch 64, 4 heads, L 221: K 16 takes 138 ms with 16 writes and
    158 with 32; K 32 259, 240 and 386 with 16, 32 and 64; K 64 698, 545 and 678.
    """
    return max(1, (16 if head_dim <= 16 else 32) // writes)


def initial_decays(num_heads: int) -> tuple[nn.Parameter, nn.Parameter]:
    """log A and b (H,) of Mamba-2: A uniform, softplus(b) log-uniform (Dao and Gu 2024)."""
    rate = torch.empty(num_heads).uniform_(*DECAY_RATES)
    low, high = (math.log(size) for size in STEP_SIZES)
    steps = torch.empty(num_heads).uniform_(low, high).exp()
    return nn.Parameter(rate.log()), nn.Parameter(steps + (-(-steps).expm1()).log())
