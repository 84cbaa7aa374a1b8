"""Linear attention by a Taylor series of softmax: the global half of Based (Arora et al. 2024)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.mixer import GenerationState, Mixer, check_sizes, widened, without_autocast
from models.positions import rotary_table, rotate
from models.roles import Role
from models.short_convolution import ShortConvolution

# Up to so many tokens weights are computed without features. Forward and backward, one CPU thread:
# at 221 tokens, 4 heads of 32, batch 64, chunks of 64 take 0.52 s and of 128 0.40 s; at 16,384
# tokens, 4 heads of 16, batch 1, chunks of 64, 128 and 256 take 0.74, 0.57 and 0.69 s.
CHUNK_SIZE = 128


class TaylorAttention(Mixer):
    """y_i = Σ_{j<=i} w_ij v_j / Σ_{j<=i} w_ij with w_ij = 1 + s + s²/2, s = q_i·k_j / √d.

    The second-order series of softmax's exp(s) (arXiv 2402.18668, section 4), at least 1/2. As
    features, φ(x) = (1, x, x ⊗ x / √2) of x / d^(1/4), F = 1 + d + d² numbers, with
    w_ij = φ(q_i)·φ(k_j). Queries and keys are d = feature_dim wide in every head (16 there), values
    K = D / H. Chunks of CHUNK_SIZE tokens take w from s; features carry sums from chunk to chunk.
    Attention dropout does not apply. `convolution` as in `models.attention`.
    """

    rotary: Tensor

    def __init__(
        self,
        dim: int,
        num_heads: int,
        max_len: int,
        dropout: float = 0.0,
        position: str = "none",
        feature_dim: int = 16,
        convolution: str = "none",
        convolution_width: int = 4,
    ):
        super().__init__(dim, num_heads, max_len, dropout, position)
        check_sizes(feature_dim=feature_dim)
        self.feature_dim, self.features = feature_dim, 1 + feature_dim + feature_dim**2
        self.width = num_heads * feature_dim  # of all queries, and of all keys
        self.qk, self.v = nn.Linear(dim, 2 * self.width), nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)
        for matrix in (*self.qk.weight.chunk(2), self.v.weight, self.out.weight):
            nn.init.xavier_uniform_(matrix)
        for layer in (self.qk, self.v, self.out):
            nn.init.zeros_(layer.bias)
        self.convolution = ShortConvolution(2 * self.width + dim, convolution, convolution_width)
        if position == "rope":
            table = rotary_table(max_len, feature_dim, "feature_dim")
            self.register_buffer("rotary", table, persistent=False)

    def parameter_roles(self) -> dict[str, Role]:
        """Queries and keys are two matrices."""
        return {"qk.weight": Role("hidden", parts=2)}

    def forward(self, x: Tensor) -> Tensor:
        """Mix x (B, T, D) into (B, T, D)."""
        steps = torch.arange(x.shape[1], device=x.device)
        return self.attend(*self.heads(self.convolution(self.project(x)), steps))

    def project(self, x: Tensor) -> Tensor:
        """Queries, keys, values of x (..., D) side by side."""
        return torch.cat((self.qk(x), self.v(x)), dim=-1)

    def heads(self, qkv: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What `project` returns, (B, T, ·) at positions (T,) or (B, 1), as (B, H, T, ·) each.

        Queries and keys turned by their positions under rope, and divided by d^(1/4).
        """
        parts = qkv.split((self.width, self.width, self.dim), dim=-1)
        q, k, v = (part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in parts)
        if self.position == "rope":
            cos, sin = self.rotary[:, positions].unsqueeze(-3)  # ([B,] 1, T, d / 2) each
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        return widened(q) / self.feature_dim**0.25, widened(k) / self.feature_dim**0.25, v

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """From q, k (B, H, T, d), v (B, H, T, K) to the output (B, T, D)."""
        with without_autocast(q):
            qs, ks, vs = (x.split(CHUNK_SIZE, dim=2) for x in (q, k, with_ones(v)))
            sums = [weights(qs[0] @ ks[0].mT).tril() @ vs[0]]  # (B, H, C, K + 1)
            state = q.new_zeros(())
            for n in range(1, len(qs)):
                state = state + self.feature_map(ks[n - 1]).mT @ vs[n - 1]  # (B, H, F, K + 1)
                within = weights(qs[n] @ ks[n].mT).tril() @ vs[n]
                sums.append(within + self.feature_map(qs[n]) @ state)
            y = quotient(torch.cat(sums, dim=2))  # (B, H, T, K)
        return self.out(y.transpose(1, 2).flatten(2).to(v.dtype))

    def feature_map(self, x: Tensor) -> Tensor:
        """φ of x (..., d), which is divided by d^(1/4) already: (..., F)."""
        pairs = (x[..., :, None] * x[..., None, :]).flatten(-2) / 2**0.5
        return torch.cat((torch.ones_like(x[..., :1]), x, pairs), dim=-1)

    def prefill(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, GenerationState]:
        """As `Mixer.prefill`; the state is Σ φ(k) [v, 1]^T, (B, H, F, K + 1)."""
        steps = torch.arange(x.shape[1], device=x.device)
        q, k, v = self.heads(self.convolution(self.project(x)), steps)
        real = (steps < lengths[:, None])[:, None, :, None]  # (B, 1, T, 1)
        with without_autocast(x):
            tensors = {"sums": (self.feature_map(k) * real).mT @ with_ones(v)}
        tensors |= self.convolution.recent(x, lengths, self.project)
        return self.attend(q, k, v), GenerationState(tensors, lengths, x.shape[1])

    def step(self, x: Tensor, positions: Tensor, state: GenerationState) -> Tensor:
        """As `Mixer.step`; adds one term to the sums, and reads them."""
        state.advance(positions)
        qkv = self.convolution.step(self.project(x), state.tensors)[:, None]  # (B, 1, ·)
        q, k, v = self.heads(qkv, positions[:, None])  # (B, H, 1, ·)
        sums = state.tensors["sums"]
        with without_autocast(x):
            sums.addcmul_(self.feature_map(k).mT, with_ones(v))
            y = quotient(self.feature_map(q) @ sums)  # (B, H, 1, K)
        return self.out(y.flatten(1).to(v.dtype))

    def flops(self, length: int) -> dict[str, int]:
        """Projections; per token and head an F x (K + 1) state is updated and read."""
        state = self.num_heads * self.features * (self.head_dim + 1) * length
        return {
            "linear/attention_qk": 2 * 2 * self.width * self.dim * length,
            "linear/attention_v": 2 * self.dim**2 * length,
            "linear/attention_out": 2 * self.dim**2 * length,
            **self.convolution.flops(length),
            "mixing/state_update": 2 * state,
            "mixing/state_read": 2 * state,
        }

    def step_flops(self, position: int) -> int:
        """The same for every token."""
        return sum(self.flops(1).values())

    def state_bytes(self, length: int) -> int:
        """H states of F x (K + 1) float32 numbers, and the convolution's."""
        sums = 4 * self.num_heads * self.features * (self.head_dim + 1)
        return sums + self.convolution.state_bytes()


def weights(scores: Tensor) -> Tensor:
    """1 + s + s²/2."""
    return 1 + scores + scores.square() / 2


def with_ones(v: Tensor) -> Tensor:
    """(..., W) to (..., W + 1): the last column sums up the weights."""
    return F.pad(widened(v), (0, 1), value=1.0)


def quotient(sums: Tensor) -> Tensor:
    """(..., W + 1) to (..., W): sums over weights; the weights of i alone are at least 1/2."""
    return sums[..., :-1] / sums[..., -1:]
