"""Muon for hidden matrices, AdamW for the rest, and the moving average of the weights."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from models.mixer import Role
from models.transformer import Transformer
from training.recipe import Recipe

# Quintic Newton-Schulz coefficients and step count of Jordan et al. (2024).
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 5
EPSILON = 1e-7
MOMENTUM = 0.95


def build_optimizers(model: Transformer, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """The optimisers of `recipe` for the parameters of `model` by role. `adamw` takes all; `muon`
    (Jordan et al. 2024) orthogonalises the momentum of hidden matrices in the recipe's precision,
    and AdamW takes the rest."""
    hidden: list[tuple[Tensor, Role]] = []
    rest: list[tuple[Tensor, Role]] = []
    roles, dim = model.parameter_roles(), model.dim
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            to_muon = recipe.optimizer == "muon" and roles[name].kind == "hidden"
            (hidden if to_muon else rest).append((parameter, roles[name]))
    optimizers: list[torch.optim.Optimizer] = []
    if hidden:
        groups = _groups(hidden, recipe, dim, by_shape=True)
        optimizers.append(BatchedMuon(groups, dtype=getattr(torch, recipe.precision)))
    if rest:
        groups, (beta1, beta2) = _groups(rest, recipe, dim), recipe.betas
        # Fused: 0.3 ms a step instead of 0.7 at D = 32, on one Xeon core.
        optimizers.append(torch.optim.AdamW(groups, betas=(beta1, beta2), fused=True))
    return optimizers


def set_learning_rate(optimizers: list[torch.optim.Optimizer], learning_rate: float) -> None:
    """Give every group the schedule's learning rate times its own factor."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * group["factor"]


def _groups(
    parameters: Iterable[tuple[Tensor, Role]], recipe: Recipe, dim: int, by_shape: bool = False
) -> list[dict[str, Any]]:
    """Group parameters by learning rate, weight decay and, if wanted, shape of matrix."""
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    for parameter, role in parameters:
        factor = recipe.rate_factor(role.kind, dim)
        decays = role.decays and (role.kind != "vector" or recipe.decay_vectors)
        decay = recipe.weight_decay if decays else 0.0
        if recipe.decay == "independent":  # optimisers multiply it by the group's rate
            decay /= recipe.learning_rate * factor
        new = {"params": [], "parts": [], "factor": factor, "weight_decay": decay}
        shape = (len(parameter) // role.parts, *parameter.shape[1:]) if by_shape else None
        group = groups.setdefault((factor, decay, shape), new)
        group["params"].append(parameter)
        group["parts"].append(role.parts)
    return list(groups.values())


class BatchedMuon(torch.optim.Optimizer):
    """Muon for 2-D parameters, all matrices of one shape at once.

    The update of `torch.optim.Muon`, which takes one matrix at a time: small transformers would
    spend a third of their step there.

    Matrices of a group have one shape; `parts` says how many each parameter stacks along its rows.
    A missing gradient counts as 0. `lr` is matched to AdamW's by 0.2 sqrt(max(rows, columns)) (Liu
    et al. 2025). Weight decay is decoupled. Products run in `dtype`.
    """

    def __init__(self, groups: list[dict[str, Any]], dtype: torch.dtype = torch.float32) -> None:
        self.dtype = dtype
        super().__init__(groups, {"lr": 1.0})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            parameters, parts = group["params"], group["parts"]
            gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
            gradient = torch.cat(gradients).unflatten(0, (sum(parts), -1))  # (k, rows, columns)
            state = self.state[parameters[0]]
            if not state:
                state["momentum"] = torch.zeros_like(gradient)
            momentum = state["momentum"].lerp_(gradient, 1 - MOMENTUM)
            nesterov = gradient.lerp(momentum, MOMENTUM)
            update = orthogonalise(nesterov.to(self.dtype)).to(gradient.dtype)
            rate = group["lr"] * 0.2 * max(gradient.shape[1:]) ** 0.5
            torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
            by_parameter = zip(parameters, update.split(parts), strict=True)
            updates = [own.reshape(p.shape) for p, own in by_parameter]
            torch._foreach_add_(parameters, updates, alpha=-rate)


def orthogonalise(matrices: Tensor) -> Tensor:
    """Bring the singular values of matrices (k, rows, columns) near 1."""
    a, b, c = COEFFICIENTS
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=EPSILON)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.mT  # (k, short, short)
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x
