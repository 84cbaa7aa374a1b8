"""How a model is trained: the `recipe` group of the configuration."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from errors import UserError


@dataclass(frozen=True)
class Recipe:
    """Optimiser, schedule, budget and stopping rule of one training run.

    ``learning_rate`` is the peak rate at ``reference_dim``; at width D it is multiplied by
    ``(reference_dim / D) ** learning_rate_exponent`` (0 keeps it fixed, as in the paper).
    The budget is ``steps`` batches, or ``epochs`` passes over the training set; exactly one is
    given.  ``warmup`` is the share of the budget spent on the linear warm-up, unless
    ``warmup_steps`` says how many steps.  ``cooldown`` is the share of it over which, at its end,
    the schedule's rate is brought down to 0 in a straight line besides.
    ``embedding_scale`` multiplies the token embedding's initial values: Xavier's are small beside
    the sinusoidal positions that are added to them.
    ``average_decay`` keeps an exponential moving average of the weights, updated at every step by
    1 - average_decay; validation, early stopping and evaluation then use the average.
    ``stop_at`` ends training once that share of the validation chains is predicted without a
    mistake under teacher forcing (which is what free greedy generation would write), looked at
    every ``validate_every`` steps; null trains through.
    """

    name: str
    learning_rate: float
    batch_size: int
    steps: int | None = None
    epochs: float | None = None
    optimizer: Literal["adamw", "muon"] = "adamw"
    betas: list[float] = field(default_factory=lambda: [0.9, 0.999])
    weight_decay: float = 0.01
    schedule: Literal["linear", "cosine", "constant", "inverse_sqrt"] = "linear"
    warmup: float = 0.05
    warmup_steps: int | None = None
    cooldown: float = 0.0
    final_learning_rate: float = 0.0
    reference_dim: int = 64
    learning_rate_exponent: float = 0.0
    gradient_clip: float | None = None
    embedding_scale: float = 1.0
    average_decay: float | None = None
    dropout: float = 0.0
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    validate_every: int = 500
    stop_at: float | None = None

    __pydantic_config__: ClassVar[dict] = {"extra": "forbid", "strict": True}

    def __post_init__(self) -> None:
        _require_positive(self, "learning_rate", "batch_size", "validate_every", "reference_dim")
        _require_positive(self, "embedding_scale")
        if (self.steps is None) == (self.epochs is None):
            raise UserError(
                "recipe: give exactly one of recipe.steps and recipe.epochs, the other null "
                f"(got steps={self.steps}, epochs={self.epochs})"
            )
        _require_positive(self, "steps", "epochs", "warmup_steps", "gradient_clip")
        for key in ("dropout", "warmup", "cooldown", "final_learning_rate", "weight_decay"):
            _require_between(self, key, 0.0, 1.0, open_above=key == "dropout")
        if self.stop_at is not None:
            _require_between(self, "stop_at", 0.0, 1.0)
        if self.average_decay is not None:
            _require_between(self, "average_decay", 0.0, 1.0, open_above=True)
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise UserError(f"recipe.betas={self.betas}: must be two numbers in [0, 1)")

    def total_steps(self, num_sequences: int) -> int:
        """Return the step budget for a training set of ``num_sequences`` sequences."""
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None
        return max(1, math.ceil(self.epochs * num_sequences / self.batch_size))

    def peak_learning_rate(self, dim: int) -> float:
        """Return the highest learning rate that a model of width ``dim`` is trained with."""
        return self.learning_rate * (self.reference_dim / dim) ** self.learning_rate_exponent

    def learning_rate_at(self, step: int, total_steps: int, dim: int) -> float:
        """Return the rate of update ``step`` (0-based) of ``total_steps``.

        Linear warm-up from 1/w of the peak over w steps, then the schedule down to
        ``final_learning_rate`` times the peak; ``inverse_sqrt`` is peak * sqrt(w / step) (Vaswani
        et al., 2017), whatever the budget is.  The ancestor steps its schedule once an epoch,
        so that its first epoch trains at rate 0; ours moves at every batch.
        """
        peak = self.peak_learning_rate(dim)
        warmup_steps = self.warmup_steps or max(1, round(self.warmup * total_steps))
        if self.cooldown > 0:
            peak *= min(1.0, (total_steps - step) / (self.cooldown * total_steps))
        if step < warmup_steps:
            return peak * (step + 1) / warmup_steps
        progress = (step - warmup_steps) / max(1, total_steps - warmup_steps)
        floor = self.final_learning_rate
        if self.schedule == "constant":
            return peak
        if self.schedule == "inverse_sqrt":
            return peak * max(floor, math.sqrt(warmup_steps / (step + 1)))
        if self.schedule == "linear":
            return peak * (floor + (1 - floor) * (1 - progress))
        return peak * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress)))


def _require_positive(recipe: Recipe, *keys: str) -> None:
    for key in keys:
        value = getattr(recipe, key)
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise UserError(f"recipe.{key}={value}: must be greater than 0")


def _require_between(
    recipe: Recipe, key: str, low: float, high: float, open_above: bool = False
) -> None:
    value = getattr(recipe, key)
    if not (low <= value <= high) or (open_above and value == high):
        closing = ")" if open_above else "]"
        raise UserError(f"recipe.{key}={value}: must be in [{low:g}, {high:g}{closing}")
