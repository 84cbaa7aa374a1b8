"""Muon with all weight matrices of one shape orthogonalised together.

Same update as `torch.optim.Muon`, which is the reference in the tests and takes one matrix at a
time; small transformers spend a third of their step there.  A model of three layers has four
shapes, so 60 batched products do the work of 180.
"""

from __future__ import annotations

from collections import defaultdict
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

    ``lr`` is matched to AdamW's by the factor 0.2 sqrt(max(rows, columns)) (Liu et al., 2025), so
    one schedule serves both.  Weight decay is decoupled.  Every parameter must have a gradient.
    Parameters and momentum stay as they are; the products run in ``dtype``.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.01,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.dtype = dtype
        by_shape: dict[tuple[int, ...], list[Tensor]] = defaultdict(list)
        for parameter in parameters:
            by_shape[tuple(parameter.shape)].append(parameter)
        defaults: dict[str, Any] = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__([{"params": same} for same in by_shape.values()], defaults)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter once."""
        for group in self.param_groups:
            parameters = group["params"]
            gradient = torch.stack([p.grad for p in parameters])  # (k, rows, columns)
            state = self.state[parameters[0]]
            if not state:
                state["momentum"] = torch.zeros_like(gradient)
            momentum = state["momentum"].lerp_(gradient, 1 - group["momentum"])
            nesterov = gradient.lerp(momentum, group["momentum"])
            update = orthogonalise(nesterov.to(self.dtype)).to(gradient.dtype)
            rate = group["lr"] * 0.2 * max(gradient.shape[1:]) ** 0.5
            torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(parameters, list(update.unbind()), alpha=-rate)


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
