"""What a token mixer is, and the part that all attention-like mixers share.

A new mixer is a subclass of `Mixer` that defines `forward`: the rest has defaults that are right
for every causal mixer and slow. What it may override, and why: `prefill` and `step` (generation
in less than a full forward pass per token), `flops` and `state_bytes` (its cost as formulas).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from errors import UserError
from models import positions as places


@dataclass
class GenerationState:
    """What a mixer remembers of B sequences while they are generated.

    tensors: by name, each (B, ...); row b belongs to sequence b.
    lengths: (B,), tokens read so far. extent: no sequence is longer than this; kept as a Python
    number, so that a step can look at the longest sequence only, without asking the device.
    """

    tensors: dict[str, Tensor]
    lengths: Tensor
    extent: int

    def advance(self, positions: Tensor) -> None:
        """Note that every row b has now read the token at positions[b]."""
        self.lengths = positions + 1
        self.extent += 1

    def select(self, rows: Tensor) -> GenerationState:
        """Rows `rows` (R,) of every tensor, in that order, as a new state."""
        lengths = self.lengths.index_select(0, rows)
        tensors = {name: held.index_select(0, rows) for name, held in self.tensors.items()}
        return GenerationState(tensors, lengths, int(lengths.max()) if len(rows) else 0)

    def nbytes(self) -> int:
        """Bytes of the tensors, as allocated."""
        return sum(held.numel() * held.element_size() for held in self.tensors.values())


class Mixer(nn.Module):
    """A causal map from (B, T, D) to (B, T, D): output t depends on inputs 0..t alone.

    Parameters of the constructor: dim (D), num_heads (H), max_len (longest T), dropout (share of
    the mixer's own weights dropped in training), position ("rope": the mixer places its tokens
    itself; otherwise it need not). Raises UserError where they do not fit together.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        max_len: int,
        dropout: float = 0.0,
        position: str = "none",
    ):
        super().__init__()
        check_sizes(dim=dim, num_heads=num_heads, max_len=max_len)
        if dim % num_heads:
            raise UserError(f"dim={dim} is not divisible by num_heads={num_heads}")
        check_dropout(dropout)
        check_choice("position", position, places.CHOICES)
        self.dim, self.num_heads, self.head_dim = dim, num_heads, dim // num_heads
        self.max_len, self.dropout, self.position = max_len, dropout, position

    def forward(self, x: Tensor) -> Tensor:
        """Mix x (B, T, D), T <= max_len, into (B, T, D)."""
        raise NotImplementedError

    def reset_parameters(self) -> None:
        """Xavier-uniform for every weight matrix (PAPER section 2), zero for every bias."""
        initialise(self)

    def prefill(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, GenerationState]:
        """Read the first lengths[b] >= 1 tokens of each row of x (B, T, D), padded on the right.

        Returns the outputs (B, T, D), meaningless where padded, and the state. This default
        keeps the inputs themselves.
        """
        inputs = x.new_zeros(x.shape[0], self.max_len, self.dim)  # (B, L, D)
        inputs[:, : x.shape[1]] = x
        return self(x), GenerationState({"inputs": inputs}, lengths, x.shape[1])

    def step(self, x: Tensor, positions: Tensor, state: GenerationState) -> Tensor:
        """Read one more token of each row: x (B, D) at 0-based positions (B,); returns (B, D).

        positions[b] is how many tokens row b has read. Updates `state` in place. This default
        mixes everything read so far once more: right for every causal mixer, and slow.
        """
        rows = torch.arange(len(x), device=x.device)
        state.advance(positions)
        state.tensors["inputs"][rows, positions] = x
        return self(state.tensors["inputs"][:, : state.extent])[rows, positions]  # (B, D)

    def select(self, state: GenerationState, rows: Tensor) -> GenerationState:
        """Keep the sequences `rows` (R,) of a state, in that order."""
        return state.select(rows)

    def flops(self, length: int) -> dict[str, int]:
        """FLOPs of one forward pass over `length` tokens by named terms, 2 per multiply-add.

        "linear/..." are linear layers, "mixing/..." everything else. This default takes every
        `nn.Linear` to be applied once to every token and lets PyTorch count the remaining matrix
        products on the meta device; it does not see elementwise recurrences.
        """
        layers = [layer for layer in self.modules() if isinstance(layer, nn.Linear)]
        linear = sum(2 * layer.in_features * layer.out_features * length for layer in layers)
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            copy.deepcopy(self).to("meta")(torch.empty(1, length, self.dim, device="meta"))
        return {"linear/mixer": linear, "mixing/counted": counter.get_total_flops() - linear}

    def step_flops(self, position: int) -> int:
        """FLOPs of one `step` at a 0-based position; for the default `step`, a forward pass."""
        return sum(self.flops(position + 1).values())

    def state_bytes(self, length: int) -> int:
        """Bytes of state after `length` tokens of one sequence, in float32; here, the inputs."""
        return 4 * length * self.dim


class AttentionMixer(Mixer):
    """Projections to queries, keys and values, attention per head, projection of the output.

    Subclasses write `attend`, `prefill`, `step`, `mixing_flops` and `state_bytes`.
    """

    rotary: Tensor

    def __init__(
        self,
        dim: int,
        num_heads: int,
        max_len: int,
        dropout: float = 0.0,
        position: str = "none",
    ):
        super().__init__(dim, num_heads, max_len, dropout, position)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        if position == "rope":
            if self.head_dim % 2:
                raise UserError(f"position=rope needs an even head_dim, not {self.head_dim}")
            table = places.rotary_table(max_len, self.head_dim)
            self.register_buffer("rotary", table, persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Xavier-uniform for the query, key, value and output matrices, each by itself."""
        initialise(self)
        for matrix in self.qkv.weight.chunk(3):
            nn.init.xavier_uniform_(matrix)

    def forward(self, x: Tensor) -> Tensor:
        """Mix x (B, T, D) into (B, T, D)."""
        q, k, v = self.project(x)  # (B, H, T, K) each
        return self.merge(self.attend(q, k, v))

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Causal attention: q, k, v (B, H, T, K), without positions yet, to (B, H, T, K)."""
        raise NotImplementedError

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys, values of x (..., T, D), each (..., H, T, K)."""
        split = self.qkv(x).unflatten(-1, (3, self.num_heads, self.head_dim))  # (..., T, 3, H, K)
        q, k, v = split.transpose(-4, -2).unbind(-3)  # (..., H, 3, T, K) -> (..., H, T, K)
        return q, k, v

    def merge(self, y: Tensor) -> Tensor:
        """Heads (..., H, T, K) side by side, then the output projection: (..., T, D)."""
        return self.out(y.transpose(-3, -2).flatten(-2))

    def project_step(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys, values of one token a row: x (B, D) to (B, H, K) each."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, self.head_dim)).unbind(1)
        return q, k, v

    def merge_step(self, y: Tensor) -> Tensor:
        """One token a row: heads (B, H, K) through the output projection to (B, D)."""
        return self.out(y.flatten(1))

    def place(self, x: Tensor) -> Tensor:
        """Turn queries or keys x (B, H, T, K) of positions 0..T-1 if `position` is "rope"."""
        if self.position != "rope":
            return x
        cos, sin = self.rotary[:, : x.shape[2]]  # (T, K / 2) each
        return places.rotate(x, cos, sin)

    def place_step(self, x: Tensor, positions: Tensor) -> Tensor:
        """Turn x (B, H, K), row b at positions[b], if `position` is "rope"."""
        if self.position != "rope":
            return x
        cos, sin = self.rotary[:, positions].unsqueeze(2)  # (B, 1, K / 2) each
        return places.rotate(x, cos, sin)

    def mixing_flops(self, length: int) -> dict[str, int]:
        """The "mixing/..." terms of `flops`."""
        raise NotImplementedError

    def flops(self, length: int) -> dict[str, int]:
        """Named terms of a forward pass over `length` tokens, 2 FLOPs per multiply-add.

        Left out: biases, softmax, feature maps, rotations, dropout (elementwise, no products of
        matrices).
        """
        return {
            "linear/attention_qkv": 2 * 3 * self.dim**2 * length,
            "linear/attention_out": 2 * self.dim**2 * length,
            **self.mixing_flops(length),
        }

    def step_flops(self, position: int) -> int:
        """FLOPs of one `step`: what the token at this position adds to a forward pass."""
        return sum(self.flops(position + 1).values()) - sum(self.flops(position).values())


# All but cuDNN's, which PyTorch prefers on H100 and H200: it plans anew for every shape it meets,
# half a second each, and trimmed batches have a hundred widths.
KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def fused_attention(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """`scaled_dot_product_attention` with its options, in v's type; on a CPU at least in float32.

    PyTorch's bf16 kernel for CPUs is slower than its float32 one for heads up to 64 wide (forward
    and backward, L 87, K 16: 21 ms against 7, conversions included; L 221, K 32: 38 against 27).
    """
    if q.device.type != "cpu":
        with sdpa_kernel(KERNELS):
            return F.scaled_dot_product_attention(q, k, v, **options)
    with without_autocast(q):
        y = F.scaled_dot_product_attention(widened(q), widened(k), widened(v), **options)
    return y.to(v.dtype)


def widened(x: Tensor) -> Tensor:
    """``x`` in float32; float64 stays, since close calls are decided by what it computes."""
    return x if x.dtype == torch.float64 else x.float()


def without_autocast(x: Tensor) -> AbstractContextManager:
    """Keep products in float32 even under autocast, which the meta device does not know."""
    return nullcontext() if x.is_meta else torch.autocast(x.device.type, enabled=False)


def initialise(module: nn.Module) -> None:
    """Xavier-uniform for every weight matrix inside, zero for every bias."""
    for name, parameter in module.named_parameters():
        if parameter.dim() >= 2:
            nn.init.xavier_uniform_(parameter)
        elif name.split(".")[-1] == "bias":
            nn.init.zeros_(parameter)


def check_sizes(**sizes: int) -> None:
    """Raise UserError unless every size is a whole number of at least 1."""
    for name, size in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise UserError(f"{name}={size!r}: expected a whole number of at least 1")


def check_dropout(dropout: float) -> None:
    """Raise UserError unless 0 <= dropout < 1."""
    if not 0.0 <= dropout < 1.0:
        raise UserError(f"dropout={dropout}: expected 0 <= dropout < 1")


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Raise UserError unless value is one of choices."""
    if value not in choices:
        raise UserError(f"{name}={value!r}: expected one of {', '.join(choices)}")
