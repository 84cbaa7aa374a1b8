"""The role of a parameter: the optimiser treats it by its role, never by its number of axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from torch import nn

from common import UserError

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
