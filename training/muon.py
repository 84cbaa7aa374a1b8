"""Muon with all weight matrices of one shape orthogonalised together.

Same update as `torch.optim.Muon`, which is the reference in the tests and takes one matrix at a
time; small transformers spend a third of their step there.  A model of three layers has three
shapes, so 45 batched products do the work of 270.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

# Quintic Newton-Schulz coefficients and step count of Jordan et al. (2024).
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 5
EPSILON = 1e-7


class BatchedMuon(torch.optim.Optimizer):
    """Momentum, orthogonalised per matrix, for 2-D parameters.

    ``parameters`` are tensors, or groups of ``params`` as any optimiser takes them.  A group's
    ``parts``, one number a parameter, say how many matrices it stacks along its rows; each of them
    is orthogonalised by itself.  A parameter without a gradient counts as one of gradient 0.
    ``lr`` is matched to AdamW's by the factor 0.2 sqrt(max(rows, columns)) (Liu et al. 2025), so
    one schedule serves both.  Weight decay is decoupled.
    Parameters and momentum stay as they are; the products run in ``dtype``.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 1.0,
        momentum: float = 0.95,
        weight_decay: float = 0.01,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.dtype = dtype
        given: list[Any] = list(parameters)
        groups = given if given and isinstance(given[0], dict) else [{"params": given}]
        defaults: dict[str, Any] = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__([same for group in groups for same in _by_shape(group)], defaults)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter once."""
        for group in self.param_groups:
            parameters, parts = group["params"], group["parts"]
            gradient = torch.cat(
                [_matrices(p, n) for p, n in zip(parameters, parts, strict=True)]
            )  # (k, rows, columns)
            state = self.state[parameters[0]]
            if not state:
                state["momentum"] = torch.zeros_like(gradient)
            momentum = state["momentum"].lerp_(gradient, 1 - group["momentum"])
            nesterov = gradient.lerp(momentum, group["momentum"])
            update = orthogonalise(nesterov.to(self.dtype)).to(gradient.dtype)
            rate = group["lr"] * 0.2 * max(gradient.shape[1:]) ** 0.5
            torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
            by_parameter = zip(parameters, update.split(parts), strict=True)
            updates = [own.reshape(p.shape) for p, own in by_parameter]
            torch._foreach_add_(parameters, updates, alpha=-rate)


def _by_shape(group: dict[str, Any]) -> list[dict[str, Any]]:
    """Split a group by the shape of its matrices, so that each can be one batch."""
    shared = {key: value for key, value in group.items() if key not in ("params", "parts")}
    parameters = list(group["params"])
    split: dict[tuple[int, int], dict[str, Any]] = {}
    for p, n in zip(parameters, group.get("parts", [1] * len(parameters)), strict=True):
        rows, columns = p.shape
        same = split.setdefault((rows // n, columns), {"params": [], "parts": [], **shared})
        same["params"].append(p)
        same["parts"].append(n)
    return list(split.values())


def _matrices(parameter: Tensor, parts: int) -> Tensor:
    """The gradient as (parts, rows, columns)."""
    gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    return gradient.reshape(parts, -1, parameter.shape[1])


def orthogonalise(matrices: Tensor) -> Tensor:
    """Return matrices (k, rows, columns) with their singular values brought near 1."""
    a, b, c = COEFFICIENTS
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=EPSILON)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.mT  # (k, short, short)
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x
