"""The training loop: steps, validation, checkpoints, exact resume."""

import contextlib
import copy
import math
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim.swa_utils import get_ema_multi_avg_fn

from common import RunError, UserError, write_text
from models.transformer import Transformer
from tasks.sequences import SequenceSet
from training.checkpoint import load_checkpoint, save_checkpoint
from training.data import PACKED, PADDED, BatchOrder, Layout, SequenceTensors
from training.device import (
    Machine,
    compiled,
    compiles,
    device_name,
    keep_freed_memory,
    resolve_device,
)
from training.optim import build_optimizers, set_learning_rate
from training.recipe import Recipe

REPORT_EVERY = 50  # steps
VALIDATION_BATCH = 256  # sequences, unless memory requires fewer
# On a CPU, activations should fit the cache: at D = 128 and 145 tokens, batches of 256 take 1.5
# times as long. Not in bfloat16: new shapes cost more.
IN_CACHE = Layout(max_tokens=4096)
# Each width is compiled separately, and PyTorch gives up after eight; so batches are padded to one
# of a few widths.
WIDTHS = 4


class Interrupted(Exception):
    """Training was asked to stop; it resumes from its checkpoint."""


@dataclass(frozen=True)
class Phase:
    """A phase of a cell begins."""

    name: Literal["data", "training", "evaluation"]


@dataclass(frozen=True)
class TrainingStep:
    """`step` of at most `steps` is done; `loss` is the mean since the last validation."""

    step: int
    steps: int
    loss: float


@dataclass(frozen=True)
class Validation:
    """A row of the learning curve.

    `seconds`: as in `TrainingState`; `train_loss`: mean since the last
    validation; `validation_loss`: mean per target; `validation_chain_exact_match`: share of
    sequences predicted without a mistake; `learning_rate`: of the last step.
    """

    step: int
    seconds: float
    train_loss: float
    validation_loss: float
    validation_chain_exact_match: float
    learning_rate: float


@dataclass(frozen=True)
class Evaluated:
    """`done` of `total` test sequences are evaluated."""

    done: int
    total: int


Event = Phase | TrainingStep | Validation | Evaluated
Listener = Callable[[Event], None]


def ignore(event: Event) -> None: ...


@dataclass
class TrainingState:
    """The progress of training, part of every checkpoint.

    `seconds`: training and validation time across interruptions, CPU seconds on a CPU, else wall
    seconds. `stopped`: `solved` or `budget` once training is over. `curve`: a row per validation.
    `loss_sum`: over the steps since the last validation. `devices`: those used, in order.
    """

    step: int = 0
    seconds: float = 0.0
    stopped: Literal["solved", "budget"] | None = None
    curve: list[Validation] = field(default_factory=list)
    loss_sum: float = 0.0
    devices: list[str] = field(default_factory=list)


class Trainer:
    """Trains `model` by `recipe` on `train`, validating on `validation`.

    The same seed and configuration give the same weights on a CPU, interrupted or not: batches are
    a function of (seed, step), and checkpoints hold the random state. Checkpoint and learning curve
    are written to `folder`; `listener` receives every `Event`. When `should_stop` returns true
    after a step, a checkpoint is written and `Interrupted` raised. `raw_model` is trained; `model`,
    its moving average if the recipe keeps one, is validated and evaluated.
    """

    def __init__(
        self,
        model: Transformer,
        recipe: Recipe,
        seed: int,
        train: SequenceSet,
        validation: SequenceSet,
        folder: Path,
        machine: Machine | None = None,
        listener: Listener = ignore,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.recipe, self.folder, self.machine = recipe, folder, machine or Machine()
        self.listener, self.should_stop = listener, should_stop
        self.device = resolve_device(self.machine.device)
        self.train = SequenceTensors(train, self.device)
        self.validation = SequenceTensors(validation, self.device)
        self.order = BatchOrder(len(train), recipe.batch_size, seed)
        self.total_steps = recipe.total_steps(len(train))
        self.raw_model = model.to(self.device)
        self.model = model if recipe.average_decay is None else copy.deepcopy(model)
        # Listed once: walking the modules takes a few percent of a small model's step.
        self._weights: list[Tensor] = list(model.parameters())
        self._averages: list[Tensor] = list(self.model.parameters())
        self.optimizers = build_optimizers(model, recipe)
        self.state = TrainingState()
        self._loss_sum = torch.zeros((), dtype=torch.float64, device=self.device)
        # CPU seconds ignore other load on the machine, but also work done on a GPU.
        self.clock = time.process_time if self.device.type == "cpu" else time.perf_counter
        self._started = self.clock()
        # Every shape is compiled separately, so only eager training on a CPU avoids padding.
        self.layout, self.compiled_hidden = Layout(), None
        self._compiled = set[tuple[int, ...]]()  # shapes
        if compiles(self.machine.compile, self.device):
            self.compiled_hidden = compiled(model.hidden)
            self.layout = Layout(width_step=-(-(self.train.longest - 1) // WIDTHS))
        elif self.device.type == "cpu":
            keep_freed_memory()
            self.layout = PACKED[recipe.precision]

    def fit(self) -> TrainingState:
        """Train to the end, from the last checkpoint if there is one. Raises RunError on divergence
        and `Interrupted` when asked to stop."""
        self.resume()
        saved, self._started = time.monotonic(), self.clock() - self.state.seconds
        while self.state.stopped is None:
            begun, shapes = self.clock(), len(self._compiled)
            self.step()
            if len(self._compiled) > shapes:  # compile time is not training time
                self._started += self.clock() - begun
            self._report()
            stop = self.state.stopped is None and self.should_stop()
            if stop or time.monotonic() - saved > self.machine.checkpoint_seconds:
                self.save()
                saved = time.monotonic()
            if stop:
                raise Interrupted
        self.save()
        return self.state

    def step(self) -> None:
        """One update by the gradient of the mean loss over one batch."""
        step, model = self.state.step, self.raw_model.train()
        set_learning_rate(self.optimizers, self.recipe.learning_rate_at(step, self.total_steps))
        for weight in self._weights:
            weight.grad = None
        index = self.order.indices(step)  # (B,)
        num_targets = self.train.num_targets(index)
        # An epoch's last, incomplete batch is not worth a compilation.
        use_compiled = self.compiled_hidden is not None and len(index) == self.order.batch_size
        hidden: Any = self.compiled_hidden if use_compiled else model.hidden
        loss = torch.zeros((), device=self.device)
        for part in self.train.parts(index, self.layout, self.machine.micro_batch_size):
            batch = self.train.batch(part, self.layout)
            # `()` is an eager step; in the first one, CPU kernels compile.
            self._compiled.add(tuple(batch.inputs.shape) if use_compiled else ())
            with autocast(self.recipe.precision, self.device):
                x = batch.at_targets(hidden(batch.inputs, batch.packing))  # (targets, D)
                logits = model.head(x).float()  # (targets, V)
                part_loss = F.cross_entropy(logits, batch.targets)
                part_loss = part_loss * (len(batch.targets) / num_targets)
            part_loss.backward()
            loss += part_loss.detach()
        if self.recipe.gradient_clip is not None:
            torch.nn.utils.clip_grad_norm_(self._weights, self.recipe.gradient_clip)
        for optimizer in self.optimizers:
            optimizer.step()
        if self.recipe.average_decay is not None:
            # Unlike `AveragedModel`, this does not wait for the device.
            update_average = get_ema_multi_avg_fn(self.recipe.average_decay * (step > 0))
            update_average(self._averages, self._weights, step)
        self._loss_sum += loss
        self.state.step += 1

    def _report(self) -> None:
        """Report the loss and validate, each on schedule; RunError for a NaN."""
        step = self.state.step
        validates = step % self.recipe.validate_every == 0 or step >= self.total_steps
        if not validates and step % REPORT_EVERY:
            return
        last = self.state.curve[-1].step if self.state.curve else 0
        loss = float(self._loss_sum) / (step - last)
        if not math.isfinite(loss):
            raise RunError(f"training diverged: loss {loss} by step {step}")
        self.listener(TrainingStep(step, self.total_steps, loss))
        if validates:
            self._validate(loss)

    def _validate(self, train_loss: float) -> None:
        """Add a row to the learning curve; stop if solved or out of budget."""
        state, step = self.state, self.state.step
        for mean, current in zip(self.model.buffers(), self.raw_model.buffers(), strict=True):
            mean.copy_(current)  # only parameters are averaged
        most = min(VALIDATION_BATCH, self.machine.micro_batch_size or VALIDATION_BATCH)
        loss, exact = validate(self.model, self.validation, self.recipe.precision, most)
        if not math.isfinite(loss):
            raise RunError(f"training diverged: validation loss {loss} at step {step}")
        learning_rate = self.recipe.learning_rate_at(step - 1, self.total_steps)
        state.seconds = self.clock() - self._started
        state.curve.append(Validation(step, state.seconds, train_loss, loss, exact, learning_rate))
        self._loss_sum.zero_()
        self.listener(state.curve[-1])
        if self.recipe.stop_at is not None and exact >= self.recipe.stop_at:
            state.stopped = "solved"
        elif step >= self.total_steps:
            state.stopped = "budget"

    def save(self) -> None:
        if self.state.stopped is None:
            self.state.seconds = self.clock() - self._started
        self.state.loss_sum = float(self._loss_sum)
        content = {
            "model": self.model.state_dict(),
            "raw_model": self.raw_model.state_dict(),
            "optimizer": [optimizer.state_dict() for optimizer in self.optimizers],
            "random": torch.get_rng_state(),
            "state": asdict(self.state),
        }
        if self.device.type == "cuda":
            content["random_cuda"] = torch.cuda.get_rng_state(self.device)
        save_checkpoint(self.folder / "checkpoint.pt", content)
        curve = pd.DataFrame(self.state.curve, columns=[*Validation.__annotations__])
        write_text(self.folder / "curve.csv", curve.to_csv(index=False, float_format="%.8g"))

    def resume(self) -> None:
        """Continue from the checkpoint, if any. A damaged one is set aside with a warning."""
        path = self.folder / "checkpoint.pt"
        if path.exists():
            try:
                self.restore(load_checkpoint(path))
            except UserError as error:
                path.replace(path.with_suffix(".damaged"))
                print(f"warning: {error}; set aside; training restarts", file=sys.stderr)
        name = device_name(self.device)
        if self.state.stopped is None and name not in self.state.devices:
            self.state.devices.append(name)

    def restore(self, content: dict[str, Any]) -> None:
        self.raw_model.load_state_dict(content["raw_model"])
        self.model.load_state_dict(content["model"])
        for optimizer, state in zip(self.optimizers, content["optimizer"], strict=True):
            optimizer.load_state_dict(state)
        torch.set_rng_state(content["random"])
        if "random_cuda" in content and self.device.type == "cuda":
            torch.cuda.set_rng_state(content["random_cuda"], self.device)
        curve = [Validation(**row) for row in content["state"]["curve"]]
        self.state = TrainingState(**{**content["state"], "curve": curve})
        self._loss_sum.fill_(self.state.loss_sum)


def autocast(precision: str, device: torch.device) -> contextlib.AbstractContextManager:
    """The context for a forward pass in `precision`, float32 or bfloat16."""
    if precision == "float32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


@torch.no_grad()
def validate(
    model: Transformer,
    sequences: SequenceTensors,
    precision: str,
    batch_size: int = VALIDATION_BATCH,
) -> tuple[float, float]:
    """(mean loss per target, share of sequences whose every arg-max is right).

    The second is `chain_exact_match` on the validation set: a chain that is right under teacher
    forcing is the one greedy generation writes, up to bfloat16 rounding. With labels, the share
    with every label right.
    """
    model.eval()
    device = sequences.tokens.device
    order = torch.argsort(sequences.host_lengths)
    loss_sum, exact = torch.zeros(2, dtype=torch.float64, device=device)  # read once, at the end
    layout = IN_CACHE if device.type == "cpu" and precision == "float32" else PADDED
    with autocast(precision, device):
        for index in sequences.parts(order, layout, batch_size):
            batch = sequences.batch(index)
            x = batch.at_targets(model.hidden(batch.inputs))  # (targets, D)
            logits = model.head(x).float()  # (targets, V)
            loss_sum += F.cross_entropy(logits, batch.targets, reduction="sum")
            wrong = batch.spread(logits.argmax(-1) != batch.targets)  # (B, T)
            exact += (~wrong.any(dim=1)).sum()
    return float(loss_sum) / sequences.num_targets(order), float(exact) / len(order)


def still_improving(curve: list[Validation]) -> bool | None:
    """Whether correct validation chains rose by over 2 points in the last fifth of the steps; None
    without a validation before."""
    early = [row for row in curve if row.step <= 0.8 * curve[-1].step]
    if not early:
        return None
    rise = curve[-1].validation_chain_exact_match - early[-1].validation_chain_exact_match
    return rise > 0.02 + 1e-9
