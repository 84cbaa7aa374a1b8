"""The token mixer interface.

A new mixer subclasses `Mixer`, initialises its own parameters and defines `forward`. Values in
`model.mixer` are checked against the constructor's annotations. Everything else has a default that
is correct for any causal mixer, but slow. Override:

    prefill, step       to generate without a full forward pass per token
    state_bytes         to report the size of that state (default: the T inputs)
    flops               if mixing is not only matrix products (the default misses elementwise
                        recurrences), if weights are not in `nn.Linear` layers, or if `forward` does
                        more products than generation needs (the default counts T² in attention)
    forward_packed      to train without padding
    reference           if `forward` does not run in float64
    parameter_roles     if it has matrices other than `nn.Linear` weights

A subclass of a built-in mixer trains without its base's CPU kernel, which would ignore overridden
methods; `has_kernel = True` in the class body uses it all the same.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from common import UserError
from models.flops import counted_forward
from models.packing import Packing

Position = Literal["sinusoidal", "rope", "none"]


@dataclass(frozen=True)
class Role:
    """A parameter's role in the optimiser.

    kind: "hidden" (a matrix inside a block, for Muon), "embedding", "head", or "vector" (gains,
    biases, decay rates, convolution kernels). parts: how many matrices of equal height a hidden
    parameter stacks along its first axis; Muon treats them separately. decays: False exempts it
    from weight decay; vectors decay only if the recipe also says so.
    """

    kind: Literal["hidden", "embedding", "head", "vector"]
    parts: int = 1
    decays: bool = True


@dataclass
class GenerationState:
    """A mixer's memory of B sequences during generation.

    tensors: by name, each (B, ...); `step` may replace them or write into them. extent: an upper
    bound on the tokens a row has read; it can exceed max_len, since finished rows keep stepping.
    Integer formats (`evaluation.state_format`) scale a tensor of three or more axes by head if axis
    1 has H entries and it is not called "recent" or "inputs".
    """

    tensors: dict[str, Tensor]
    extent: int

    def select(self, rows: Tensor, extent: int) -> "GenerationState":
        """Rows `rows` (R,) of every tensor, in that order; they have read up to `extent` tokens."""
        tensors = {name: held.index_select(0, rows) for name, held in self.tensors.items()}
        return GenerationState(tensors, extent)


class Mixer(nn.Module):
    """A causal map from (B, T, D) to (B, T, D): output t depends on inputs 0..t only.

    dim (D), num_heads (H), max_len (longest T), dropout (on attention weights), position
    ("rope": the mixer rotates by position; otherwise it can ignore positions). Raises UserError if
    H does not divide D, and for position="rope" unless takes_rope.
    """

    takes_rope = False
    # If true, the constructor takes `longest_lines` and the other methods `ends`
    # (`models.last_lines`); `prefill` and `step` have no default then.
    sees_lines = False

    def __init__(
        self, dim: int, num_heads: int, max_len: int, dropout: float = 0.0, position: str = "none"
    ):
        super().__init__()
        if dim % num_heads:
            raise UserError(f"dim={dim} is not divisible by num_heads={num_heads}")
        if position == "rope" and not self.takes_rope:
            kind = type(self).__name__
            raise UserError(f"position=rope: {kind} has no rotation; use sinusoidal or none")
        self.dim, self.num_heads, self.head_dim = dim, num_heads, dim // num_heads
        self.max_len, self.dropout, self.position = max_len, dropout, position

    def forward(self, x: Tensor) -> Tensor:
        """Mix x (B, T, D), T <= max_len, into (B, T, D)."""
        raise NotImplementedError

    def forward_packed(self, x: Tensor, packing: Packing, **ends: Tensor) -> Tensor:
        """`forward` on packed x (N, D) to (N, D); by default padded in groups of similar length."""
        return packing.map_padded(self, x, **ends)

    def parameter_roles(self) -> dict[str, Role]:
        """Roles, by name, where not the default: `nn.Linear` weights hidden, all others vectors."""
        return {}

    def reference(self) -> "Mixer":
        """A mixer of the same parameters that computes in float64, never in lower precision, for
        evaluation."""
        return self

    def prefill(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, GenerationState]:
        """Read the first lengths[b] >= 1 tokens of each row of x (B, T, D), right-padded. Returns
        outputs (B, T, D), meaningless where padded, and the state: by default, the inputs."""
        inputs = nn.functional.pad(x, (0, 0, 0, self.max_len - x.shape[1]))  # (B, L, D)
        return self(x), GenerationState({"inputs": inputs}, x.shape[1])

    def step(self, x: Tensor, positions: Tensor, state: GenerationState) -> Tensor:
        """Read one more token per row, x (B, D) at 0-based positions (B,); returns (B, D). Updates
        `state.tensors`; `state.extent` already counts x. The default mixes the whole prefix
        again."""
        rows = torch.arange(len(x), device=x.device)
        state.tensors["inputs"][rows, positions] = x
        return self(state.tensors["inputs"][:, : state.extent])[rows, positions]  # (B, D)

    def flops(self, length: int) -> dict[str, int]:
        """FLOPs of a forward pass over `length` tokens, 2 per multiply-add, as terms "linear/..."
        and "mixing/...". The default counts matrix products; UserError if there are none and
        length > 1."""
        return counted_forward(self, self.dim, length)

    def state_bytes(self, length: int) -> int:
        """Bytes of one sequence's state after `length` tokens in float32; by default the inputs."""
        return 4 * length * self.dim


def xavier_uniform(module: nn.Module, parts: int = 1) -> None:
    """Xavier-uniform weight matrices (Yang et al. 2024, section 6), zero biases. A weight stacks
    `parts` matrices, initialised separately."""
    for name, parameter in module.named_parameters():
        if parameter.dim() >= 2:
            for matrix in parameter.chunk(parts):
                nn.init.xavier_uniform_(matrix)
        elif name.split(".")[-1].startswith("bias"):
            nn.init.zeros_(parameter)


def length_mask(lengths: Tensor, width: int) -> Tensor:
    """(B, width): which tokens are among the first lengths[b] of their row."""
    return torch.arange(width, device=lengths.device) < lengths[:, None]


def upcast(x: Tensor) -> Tensor:
    """x in float32, or unchanged if float64, as in exact evaluation."""
    return x if x.dtype == torch.float64 else x.float()


def without_autocast(x: Tensor) -> AbstractContextManager:
    """A context that keeps products in float32 under autocast (none on the meta device)."""
    return nullcontext() if x.is_meta else torch.autocast(x.device.type, enabled=False)
