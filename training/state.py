"""What a checkpoint holds, and how training goes on from it."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any, Literal

import torch
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from errors import UserError
from models.transformer import Transformer
from training.average import MovingAverage
from training.events import Validation
from training.optimizers import OptimizerGroup

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass
class TrainingState:
    """What training has come to.

    ``seconds`` is time spent training and validating, over all interruptions; ``stopped`` is
    ``solved`` or ``budget`` once training is over; ``curve`` has a row per validation;
    ``loss_sum`` is over the steps since the last of them.
    """

    step: Annotated[int, Field(ge=0)] = 0
    seconds: Seconds = 0.0
    stopped: Literal["solved", "budget"] | None = None
    curve: list[Validation] = field(default_factory=list)
    loss_sum: float = 0.0

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    @property
    def steps_since_validation(self) -> int:
        """How many steps ``loss_sum`` is over."""
        return self.step - (self.curve[-1].step if self.curve else 0)


def pack(
    model: Transformer,
    optimizer: OptimizerGroup,
    average: MovingAverage | None,
    state: TrainingState,
) -> dict[str, Any]:
    """Return all that decides how training goes on, tensors and plain data.

    ``model`` in it holds the weights to evaluate: the average, where one is kept; the weights that
    are trained are then ``trained``.
    """
    content = {
        "model": (model if average is None else average.model).state_dict(),
        "optimizer": optimizer.state_dict(),
        "random": torch.get_rng_state(),
        "state": dataclasses.asdict(state),
    }
    if average is not None:
        content["trained"] = model.state_dict()
    device = next(model.parameters()).device
    if device.type == "cuda":
        content["random_cuda"] = torch.cuda.get_rng_state(device)
    return content


def unpack(
    content: dict[str, Any],
    model: Transformer,
    optimizer: OptimizerGroup,
    average: MovingAverage | None,
    total_steps: int,
) -> TrainingState:
    """Put what `pack` returned into model, optimiser, average and random generators.

    Raises `UserError` where ``content`` is not what this training can have written; some of it
    may then be loaded.
    """
    try:
        state = _state_from(content["state"], total_steps)
        model.load_state_dict(content["model" if average is None else "trained"])
        if average is not None:
            average.model.load_state_dict(content["model"])
        optimizer.load_state_dict(content["optimizer"])
        torch.set_rng_state(content["random"].cpu())
        device = next(model.parameters()).device
        if "random_cuda" in content and device.type == "cuda":
            torch.cuda.set_rng_state(content["random_cuda"].cpu(), device)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:120]
        raise UserError(f"damaged checkpoint ({type(error).__name__}: {reason})") from None
    return state


def _state_from(plain: Any, total_steps: int) -> TrainingState:
    """Return the state that `dataclasses.asdict` made ``plain``; raise ValueError for no state."""
    try:
        state = TypeAdapter(TrainingState).validate_json(json.dumps(plain))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"state {key}: {first['msg']}") from None
    steps = [0, *(row.step for row in state.curve), state.step]
    in_order = all(a < b for a, b in pairwise(steps[:-1])) and steps[-2] <= state.step
    if not in_order or state.step > total_steps:
        raise ValueError(f"state step {state.step} of {total_steps} after validations at {steps}")
    return state
