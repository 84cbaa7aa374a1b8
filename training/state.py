"""What a checkpoint holds, and how training goes on from it."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import torch
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from common import UserError
from models.transformer import Transformer
from training.average import MovingAverage
from training.events import Validation
from training.optimizers import OptimizerGroup
from training.recipe import Recipe

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass
class TrainingState:
    """What training has come to.

    ``seconds`` is time spent training and validating, over all interruptions: seconds of cores on
    a CPU, which other work on the machine does not lengthen, and of the clock elsewhere.
    ``stopped`` is ``solved`` or ``budget`` once training is over; ``curve`` has a row per
    validation; ``loss_sum`` is over the steps since the last of them.  ``devices`` names those
    that have trained, in order; interruptions may have moved the training from one to another.
    """

    step: Annotated[int, Field(ge=0)] = 0
    seconds: Seconds = 0.0
    stopped: Literal["solved", "budget"] | None = None
    curve: list[Validation] = field(default_factory=list)
    loss_sum: float = 0.0
    devices: list[str] = field(default_factory=list)

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
    recipe: Recipe,
    total_steps: int,
) -> TrainingState:
    """Put what `pack` returned into model, optimiser, average and random generators.

    Raises `UserError` where ``content`` is not what this training can have written; some of it
    may then be loaded.
    """
    try:
        state = state_from(content["state"], recipe, total_steps)
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


def state_from(plain: Any, recipe: Recipe, total_steps: int) -> TrainingState:
    """Return the state that `dataclasses.asdict` made ``plain``.

    Raises ValueError where training by ``recipe`` for ``total_steps`` cannot have come to it.
    """
    try:
        state = TypeAdapter(TrainingState).validate_json(json.dumps(plain))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"state {key}: {first['msg']}") from None
    seen = [row.step for row in state.curve]
    last = min(state.step, total_steps)
    due = [*range(recipe.validate_every, last + 1, recipe.validate_every)]
    if last == total_steps and due[-1:] != [total_steps]:
        due.append(total_steps)
    if seen != due or state.step > total_steps:
        raise ValueError(f"state step {state.step} of {total_steps} after validations at {seen}")
    if state.stopped != _ending(state, recipe, total_steps):
        raise ValueError(f"state stopped: {state.stopped} is not what its learning curve says")
    return state


def _ending(state: TrainingState, recipe: Recipe, total_steps: int) -> str | None:
    """Return why training is over at the last row of the curve, None where it is not."""
    if not state.curve or state.curve[-1].step != state.step:
        return None
    exact = state.curve[-1].validation_chain_exact_match
    if recipe.stop_at is not None and exact >= recipe.stop_at:
        return "solved"
    return "budget" if state.step >= total_steps else None
