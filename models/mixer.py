"""What a token mixer is.

A new mixer is a subclass of `Mixer` that defines `forward`, and initialises its own parameters in
its constructor: the rest has defaults that are right for every causal mixer and slow. What it may
override, and why:

`prefill`, `step`    generation in less than a full forward pass per token
`state_bytes`        what its state takes
`flops`              its cost as a formula; needed where mixing is no product of matrices
`step_flops`         the same of one `step`
`forward_packed`     training on sequences without padding
`reference`          the same function in float64; needed where its kernel does not run in float64
`parameter_roles`    what its parameters are to the optimiser, unless weights of `nn.Linear`
                     are its only matrices
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from common import UserError
from models.flops import counted_forward, counted_step
from models.packing import Packing

POSITIONS = ("sinusoidal", "rope", "none")
Kind = Literal["hidden", "embedding", "head", "vector"]
KINDS: tuple[str, ...] = get_args(Kind)


@dataclass(frozen=True)
class Role:
    """What a parameter is to the optimiser.

    kind: "hidden" a weight matrix inside a block, which Muon orthogonalises; "embedding" of the
    tokens; "head", the matrix of the logits; "vector" all else: gains, biases, decay rates
    (`A_log`), convolution kernels. parts: how many matrices of equal height a hidden parameter
    stacks along its first axis; Muon takes them apart. decays: false exempts the parameter from
    weight decay; vectors decay only where the recipe says so besides.
    """

    kind: Kind
    parts: int = 1
    decays: bool = True


@dataclass
class GenerationState:
    """What a mixer remembers of B sequences while they are generated.

    tensors: by name, each (B, ...); row b belongs to sequence b.
    lengths: (B,), tokens read so far. extent: no sequence is longer than this; kept as a Python
    number, so that a step can look at the longest sequence only, without asking the device. It may
    exceed max_len: rows that have ended run along idle.
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


class Mixer(nn.Module):
    """A causal map from (B, T, D) to (B, T, D): output t depends on inputs 0..t alone.

    Parameters of the constructor: dim (D), num_heads (H), max_len (longest T), dropout (share of
    the mixer's own weights dropped in training), position ("rope": the mixer places its tokens
    itself; otherwise it need not). Raises UserError where D / H is no whole number.
    takes_rope: False where there is nothing to turn, and position="rope" is refused.
    """

    takes_rope = True

    def __init__(
        self,
        dim: int,
        num_heads: int,
        max_len: int,
        dropout: float = 0.0,
        position: str = "none",
    ):
        super().__init__()
        if dim % num_heads:
            raise UserError(f"dim={dim} is not divisible by num_heads={num_heads}")
        check_choice("position", position, POSITIONS)
        if position == "rope" and not self.takes_rope:
            kind = type(self).__name__
            raise UserError(f"position=rope: {kind} has nothing to turn; use sinusoidal or none")
        self.dim, self.num_heads, self.head_dim = dim, num_heads, dim // num_heads
        self.max_len, self.dropout, self.position = max_len, dropout, position

    def forward(self, x: Tensor) -> Tensor:
        """Mix x (B, T, D), T <= max_len, into (B, T, D)."""
        raise NotImplementedError

    def forward_packed(self, x: Tensor, packing: Packing) -> Tensor:
        """`forward` of sequences that lie one behind another, x (N, D) to (N, D).

        This default pads them in groups of like lengths.
        """
        return packing.in_groups(self, x)

    def parameter_roles(self) -> dict[str, Role]:
        """Roles of the mixer's own parameters by name, as far as they differ from the default.

        The default: weights of `nn.Linear` are hidden matrices, all else vectors.
        """
        return {}

    def reference(self) -> nn.Module:
        """A module that computes `forward` in float64 once its parameters are, sharing them.

        The exact evaluation uses it in the mixer's place. This default is the mixer itself.
        """
        return self

    def prefill(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, GenerationState]:
        """Read the first lengths[b] >= 1 tokens of each row of x (B, T, D), padded on the right.

        Returns the outputs (B, T, D), meaningless where padded, and the state. This default
        keeps the inputs themselves.
        """
        inputs = nn.functional.pad(x, (0, 0, 0, self.max_len - x.shape[1]))  # (B, L, D)
        return self(x), GenerationState({"inputs": inputs}, lengths, x.shape[1])

    def step(self, x: Tensor, positions: Tensor, state: GenerationState) -> Tensor:
        """Read one more token of each row: x (B, D) at 0-based positions (B,); returns (B, D).

        positions[b] is how many tokens row b has read. Updates `state` in place. This default
        mixes everything read so far once more.
        """
        rows = torch.arange(len(x), device=x.device)
        state.advance(positions)
        state.tensors["inputs"][rows, positions] = x
        return self(state.tensors["inputs"][:, : state.extent])[rows, positions]  # (B, D)

    def flops(self, length: int) -> dict[str, int]:
        """FLOPs of one forward pass over `length` tokens by named terms, 2 per multiply-add.

        "linear/..." are linear layers, "mixing/..." everything else. This default counts the
        products of matrices in a pass on the meta device. Raises UserError where it finds none.
        """
        return counted_forward(self, length)

    def step_flops(self, position: int) -> int:
        """FLOPs of one `step` at a 0-based position.

        The default `step` costs a forward pass; any other is counted as `flops` is.
        """
        if type(self).step is Mixer.step:
            return sum(self.flops(position + 1).values())
        return counted_step(self, position)

    def state_bytes(self, length: int) -> int:
        """Bytes of state after `length` tokens of one sequence, in float32; here, the inputs."""
        return 4 * length * self.dim


def default_roles(module: nn.Module) -> dict[str, Role]:
    """Role of every parameter by name: an `nn.Linear`'s weight is hidden, all else a vector."""
    matrices = {id(layer.weight) for layer in module.modules() if isinstance(layer, nn.Linear)}
    return {
        name: Role("hidden" if id(parameter) in matrices else "vector")
        for name, parameter in module.named_parameters()
    }


def with_stated_roles(module: nn.Module, stated: Mapping[str, Role]) -> dict[str, Role]:
    """Default roles of `module`, replaced where `stated`, by parameter name, says otherwise.

    Raises UserError for a name that is no parameter, and for a hidden parameter that is no stack of
    `parts` matrices.
    """
    where = f"{type(module).__name__}.parameter_roles"
    named = dict(module.named_parameters(remove_duplicate=False))
    first_name = {id(parameter): name for name, parameter in module.named_parameters()}
    roles = default_roles(module)
    for name, role in stated.items():
        if name not in named:
            known = ", ".join(named) or "none"
            raise UserError(f"{where}: {name!r} is no parameter of the mixer; it has {known}")
        shape = tuple(named[name].shape)
        if role.kind == "hidden" and (len(shape) != 2 or shape[0] % role.parts):
            raise UserError(f"{where}: {name!r} of shape {shape}: no {role.parts} matrices")
        roles[first_name[id(named[name])]] = role
    return roles


def check_sizes(**sizes: int) -> None:
    """Raise UserError unless every size is a whole number of at least 1."""
    for name, size in sizes.items():
        if not isinstance(size, int) or size < 1:
            raise UserError(f"{name}={size!r}: expected a whole number of at least 1")


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Raise UserError unless value is one of choices."""
    if value not in choices:
        raise UserError(f"{name}={value!r}: expected one of {', '.join(choices)}")


def xavier_uniform(module: nn.Module) -> None:
    """Xavier-uniform for every weight matrix inside (Yang et al. 2024, section 6), biases zero."""
    for name, parameter in module.named_parameters():
        if parameter.dim() >= 2:
            nn.init.xavier_uniform_(parameter)
        elif name.split(".")[-1] == "bias":
            nn.init.zeros_(parameter)


def is_read(lengths: Tensor, width: int) -> Tensor:
    """(B, T), T `width`: which tokens are among the first lengths[b] of their row."""
    return torch.arange(width, device=lengths.device) < lengths[:, None]


def widened(x: Tensor) -> Tensor:
    """x in float32; float64 stays, since close calls are decided by what it computes."""
    return x if x.dtype == torch.float64 else x.float()


def without_autocast(x: Tensor) -> AbstractContextManager:
    """Keep products in float32 even under autocast, which the meta device does not know."""
    return nullcontext() if x.is_meta else torch.autocast(x.device.type, enabled=False)
