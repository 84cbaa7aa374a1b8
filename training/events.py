"""What a running cell tells its listeners: progress bar, heartbeat file, W&B."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Phase:
    """A part of the cell's work begins."""

    name: Literal["data", "training", "evaluation"]


@dataclass(frozen=True)
class TrainingStarts:
    """Training begins, or goes on from the checkpoint after ``step`` of at most ``steps``."""

    step: int
    steps: int


@dataclass(frozen=True)
class TrainingStep:
    """``step`` of at most ``steps`` is done; ``loss`` is the mean since the last validation."""

    step: int
    steps: int
    loss: float


@dataclass(frozen=True)
class Validation:
    """A row of the learning curve.

    ``seconds`` is the training time so far, this validation included, over all interruptions;
    ``train_loss`` the mean since the last validation; ``validation_loss`` the mean per target;
    ``validation_chain_exact_match`` the share of sequences predicted without a mistake;
    ``learning_rate`` that of the last step.
    """

    step: int
    seconds: float
    train_loss: float
    validation_loss: float
    validation_chain_exact_match: float
    learning_rate: float


@dataclass(frozen=True)
class Evaluated:
    """``done`` of ``total`` test sequences are judged."""

    done: int
    total: int


Event = Phase | TrainingStarts | TrainingStep | Validation | Evaluated
Listener = Callable[[Event], None]

CURVE_COLUMNS = tuple(field.name for field in dataclasses.fields(Validation))


def ignore(event: Event) -> None:
    """Listen to nothing."""
