"""Optimisers by the names that recipes use."""

from __future__ import annotations

import torch
from torch import nn

from training.muon import BatchedMuon
from training.recipe import Recipe

# On a CPU, too, AdamW in one kernel takes 0.2 ms instead of 0.5 at D = 16, and Muon in bfloat16 12
# instead of 21 at D = 128.  Either would change results that are on record: RESULTS_VERSION.
FUSED_ON = BFLOAT16_ON = ("cuda",)


class OptimizerGroup:
    """Several optimisers that step together, each rate a fixed multiple of the schedule's."""

    def __init__(self, parts: list[tuple[torch.optim.Optimizer, float]]) -> None:
        self.parts = parts

    def set_learning_rate(self, rate: float) -> None:
        """Set the schedule's rate."""
        for optimizer, multiple in self.parts:
            for group in optimizer.param_groups:
                group["lr"] = rate * multiple

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for optimizer, _ in self.parts:
            optimizer.zero_grad(set_to_none=True)

    def step(self) -> None:
        """Update every parameter once."""
        for optimizer, _ in self.parts:
            optimizer.step()

    def state_dict(self) -> list[dict]:
        """Return the optimisers' states, in order."""
        return [optimizer.state_dict() for optimizer, _ in self.parts]

    def load_state_dict(self, states: list[dict]) -> None:
        """Restore what `state_dict` returned."""
        for (optimizer, _), state in zip(self.parts, states, strict=True):
            optimizer.load_state_dict(state)


def build_optimizer(model: nn.Module, recipe: Recipe, precision: str = "float32") -> OptimizerGroup:
    """Return the optimiser that ``recipe`` names.

    ``adamw`` decays every parameter alike, as the paper's plain AdamW does.  ``muon`` (Jordan et
    al., 2024) orthogonalises the momentum of the blocks' weight matrices, on a GPU in the
    ``precision`` of the forward pass; embedding, head, norms and biases stay with AdamW.
    """
    if recipe.optimizer == "adamw":
        return OptimizerGroup([(_adamw(list(model.parameters()), recipe), 1.0)])
    matrices = [
        p for name, p in model.named_parameters() if p.ndim == 2 and name.startswith("blocks.")
    ]
    chosen = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in chosen]
    dtype = muon_dtype(rest[0].device, precision)
    muon = BatchedMuon(matrices, lr=1.0, weight_decay=recipe.weight_decay, dtype=dtype)
    return OptimizerGroup([(muon, 1.0), (_adamw(rest, recipe), 1.0)])


def muon_dtype(device: torch.device, precision: str) -> torch.dtype:
    """Return the type of Muon's products."""
    low = precision == "bfloat16" and device.type in BFLOAT16_ON
    return torch.bfloat16 if low else torch.float32


def _adamw(parameters: list[nn.Parameter], recipe: Recipe) -> torch.optim.AdamW:
    beta1, beta2 = recipe.betas
    fused = parameters[0].device.type in FUSED_ON
    return torch.optim.AdamW(
        parameters,
        lr=1.0,
        betas=(beta1, beta2),
        weight_decay=recipe.weight_decay,
        fused=fused,
        foreach=not fused,
    )
