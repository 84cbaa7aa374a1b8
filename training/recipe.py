"""How a model is trained: the Hydra group `recipe`."""

import math
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt
from pydantic.dataclasses import dataclass

from common import STRICT

Share = Annotated[float, Field(ge=0, le=1)]
ShareBelowOne = Annotated[float, Field(ge=0, lt=1)]
Exponent = Annotated[float, Field(ge=-10, le=10)]
Betas = Annotated[list[ShareBelowOne], Field(min_length=2, max_length=2)]


@dataclass(frozen=True, config=STRICT)
class RoleRate:
    """A role's share of the learning rate at width D: factor * (reference_dim / D) ** exponent."""

    factor: PositiveFloat = 1.0
    exponent: Exponent = 0.0


@dataclass(frozen=True, config=STRICT)
class Rates:
    """Learning rates by role (`models.mixer.Role`), equal by default.

    muP exponents keep the effect of updates equal at every width: with AdamW 1 for hidden matrices
    and head, 0 for embedding and vectors (Yang and Hu 2021; Yang et al. 2022, table 3). With Muon ½
    for hidden matrices: the factor 0.2 sqrt(larger side) (Liu et al. 2025) makes the spectral norm
    of a step grow as sqrt(D); Jordan et al. (2024) keep it constant.
    """

    hidden: RoleRate = RoleRate()
    embedding: RoleRate = RoleRate()
    head: RoleRate = RoleRate()
    vector: RoleRate = RoleRate()


@dataclass(frozen=True, config=STRICT)
class Recipe:
    """Optimiser, schedule, budget and stopping rule.

    `learning_rate` is the peak; `rates` multiply it by role and width. `weight_decay` acts on
    matrices, and on vectors (biases, gains) if `decay_vectors`. decay="coupled" multiplies it by
    the learning rate, as PyTorch's AdamW does; "independent" by the schedule's share of the peak
    (Loshchilov and Hutter 2019; Wortsman et al. 2023). The budget is `steps` or `epochs`, exactly
    one of them. `warmup` is the share of it for linear warm-up, unless `warmup_steps` is given;
    `cooldown` the share at its end over which the rate also falls linearly to 0. `embedding_ratio`
    scales the embedding's initial RMS relative to the sinusoids'; null keeps Xavier's.
    `average_decay` keeps an exponential moving average of the weights, used for validation, early
    stopping and evaluation. `stop_at` ends training once that share of validation chains is right
    under teacher forcing, checked every `validate_every` steps; null disables it.
    """

    name: str
    learning_rate: PositiveFloat
    batch_size: PositiveInt
    steps: PositiveInt | None = None
    epochs: PositiveFloat | None = None
    optimizer: Literal["adamw", "muon"] = "adamw"
    rates: Rates = Rates()
    reference_dim: PositiveInt = 64
    betas: Betas = Field(default_factory=lambda: [0.9, 0.999])
    weight_decay: Share = 0.01
    decay: Literal["coupled", "independent"] = "coupled"
    decay_vectors: bool = True
    schedule: Literal["linear", "cosine", "constant", "inverse_sqrt"] = "linear"
    warmup: Share = 0.05
    warmup_steps: PositiveInt | None = None
    cooldown: Share = 0.0
    final_learning_rate: Share = 0.0
    gradient_clip: PositiveFloat | None = None
    embedding_ratio: PositiveFloat | None = None
    average_decay: ShareBelowOne | None = None
    dropout: ShareBelowOne = 0.0
    precision: Literal["float32", "bfloat16"] = "float32"
    validate_every: PositiveInt = 500
    stop_at: Share | None = None

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("give exactly one of steps and epochs, the other null")

    def total_steps(self, num_sequences: int) -> int:
        """The step budget for `num_sequences`; an epoch's last batch may be smaller."""
        if self.steps is not None:
            return self.steps
        epochs = Fraction(str(self.epochs))  # exact decimal: 0.07 * 100 is more than 7
        return max(1, math.ceil(epochs * math.ceil(num_sequences / self.batch_size)))

    def rate_factor(self, kind: str, dim: int) -> float:
        """The learning rate of role `kind` at width `dim`, relative to the schedule's."""
        role: RoleRate = getattr(self.rates, kind)
        return role.factor * (self.reference_dim / dim) ** role.exponent

    def learning_rate_at(self, step: int, total_steps: int) -> float:
        """The schedule's learning rate at update `step` (0-based) of `total_steps`.

        Linear warm-up from 1/w of the peak over w steps, then down to `final_learning_rate` times
        the peak; `inverse_sqrt` is peak * sqrt(w / (step + 1)) (Vaswani et al. 2017). CoT_benchmark
        (Feng et al. 2023) steps its schedule once per epoch, so its first epoch trains at rate 0;
        ours changes with every batch.
        """
        peak = self.learning_rate
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
