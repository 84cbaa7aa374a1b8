"""Optimisers by the names that recipes use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from models.roles import Role
from models.transformer import Transformer
from training.muon import BatchedMuon
from training.recipe import Recipe

# On one core of a Xeon, AdamW's step of three groups in one kernel each takes 0.3 ms instead of 0.7
# at D = 32, 0.4 instead of 1.0 at D = 64.
FUSED_ON = ("cpu", "cuda")
# On a CPU with bfloat16 products Muon's step takes 31 ms instead of 54 at D = 128, none less at 64.
BFLOAT16_ON = ("cuda",)


class OptimizerGroup:
    """Optimisers that step together; every group's rate is its ``factor`` times the schedule's."""

    def __init__(self, parts: list[torch.optim.Optimizer]) -> None:
        self.parts = parts

    def set_learning_rate(self, rate: float) -> None:
        """Set the schedule's rate."""
        for optimizer in self.parts:
            for group in optimizer.param_groups:
                group["lr"] = rate * group["factor"]

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for optimizer in self.parts:
            optimizer.zero_grad(set_to_none=True)

    def step(self) -> None:
        """Update every parameter once."""
        for optimizer in self.parts:
            optimizer.step()

    def state_dict(self) -> list[dict]:
        """Return the optimisers' states, in order."""
        return [optimizer.state_dict() for optimizer in self.parts]

    def load_state_dict(self, states: list[dict]) -> None:
        """Restore what `state_dict` returned."""
        for optimizer, state in zip(self.parts, states, strict=True):
            optimizer.load_state_dict(state)


def build_optimizer(
    model: Transformer, recipe: Recipe, precision: str = "float32"
) -> OptimizerGroup:
    """Return the optimiser that ``recipe`` names, for the parameters of ``model`` by their roles.

    ``adamw`` takes them all.  ``muon`` (Jordan et al. 2024) orthogonalises the momentum of hidden
    matrices, on a GPU in the ``precision`` of the forward pass; AdamW takes the rest.
    """
    roles = model.parameter_roles()
    trained = [(p, roles[name]) for name, p in model.named_parameters() if p.requires_grad]
    return optimizer_by_role(trained, recipe, model.dim, precision)


def optimizer_by_role(
    parameters: Iterable[tuple[Tensor, Role]], recipe: Recipe, dim: int, precision: str = "float32"
) -> OptimizerGroup:
    """Return the optimiser that ``recipe`` names for ``parameters`` of a model of width ``dim``."""
    hidden: list[tuple[Tensor, Role]] = []
    rest: list[tuple[Tensor, Role]] = []
    for parameter, role in parameters:
        to_muon = recipe.optimizer == "muon" and role.kind == "hidden"
        (hidden if to_muon else rest).append((parameter, role))
    optimizers: list[torch.optim.Optimizer] = []
    if hidden:
        dtype = muon_dtype(hidden[0][0].device, precision)
        optimizers.append(BatchedMuon(_groups(hidden, recipe, dim), dtype=dtype))
    if rest:
        fused = rest[0][0].device.type in FUSED_ON
        beta1, beta2 = recipe.betas
        groups = _groups(rest, recipe, dim)
        optimizers.append(
            torch.optim.AdamW(groups, betas=(beta1, beta2), fused=fused, foreach=not fused)
        )
    return OptimizerGroup(optimizers)


def muon_dtype(device: torch.device, precision: str) -> torch.dtype:
    """Return the type of Muon's products."""
    low = precision == "bfloat16" and device.type in BFLOAT16_ON
    return torch.bfloat16 if low else torch.float32


def _groups(
    parameters: Iterable[tuple[Tensor, Role]], recipe: Recipe, dim: int
) -> list[dict[str, Any]]:
    """Put together what has one rate and one weight decay."""
    groups: dict[tuple[float, float], dict[str, Any]] = {}
    for parameter, role in parameters:
        factor = recipe.rate_factor(role.kind, dim)
        decay = _weight_decay(role, recipe, factor)
        new = {"params": [], "parts": [], "factor": factor, "weight_decay": decay}
        group = groups.setdefault((factor, decay), new)
        group["params"].append(parameter)
        group["parts"].append(role.parts)
    return list(groups.values())


def _weight_decay(role: Role, recipe: Recipe, factor: float) -> float:
    """Return the decay that the optimisers, which multiply it by the group's rate, are given."""
    if not role.decays or (role.kind == "vector" and not recipe.decay_vectors):
        return 0.0
    if recipe.decay == "coupled":
        return recipe.weight_decay
    return recipe.weight_decay / (recipe.learning_rate * factor)
