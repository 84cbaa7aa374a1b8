"""The training loop of one cell: steps, validations, checkpoints, exact resume."""

from __future__ import annotations

import copy
import math
import sys
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass
from pathlib import Path

import torch
from torch import Tensor

from common import RunError, UserError, write_text
from models.transformer import Transformer
from training.average import MovingAverage
from training.batches import SequenceTensors
from training.checkpoint import load_checkpoint, save_checkpoint
from training.compile import compiled_hidden, compiles, width_step
from training.distributed import ALONE, Processes
from training.events import (
    CURVE_COLUMNS,
    Listener,
    TrainingStarts,
    TrainingStep,
    Validation,
    ignore,
)
from training.loss import masked_loss, packed_loss
from training.machine import Machine
from training.malloc import keep_freed_memory
from training.optimizers import build_optimizer
from training.order import BatchOrder
from training.parts import ON_CPU, PartSizes, padded_share, parts_of
from training.precision import autocast, resolve_precision
from training.recipe import Recipe
from training.state import TrainingState, pack, unpack
from training.validation import VALIDATION_BATCH, validate

REPORT_EVERY = 50  # steps
PADDING_STEPS = 200  # whose batches tell the share of padding


class Interrupted(Exception):
    """Training was told to stop; its checkpoint is written and continues later."""


@dataclass(frozen=True)
class TrainingRun:
    """What is trained: ``model`` on ``train`` by ``recipe``, looked at on ``validation``.

    Checkpoint and learning curve lie in ``folder``; ``device_name`` is noted in the checkpoint.
    """

    model: Transformer
    recipe: Recipe
    seed: int
    train: SequenceTensors
    validation: SequenceTensors
    folder: Path
    device_name: str = ""

    @property
    def checkpoint_path(self) -> Path:
        """Where the latest checkpoint lies."""
        return self.folder / "checkpoint.pt"


class Trainer:
    """Trains the model of ``run`` on ``machine``.

    Same seed and configuration give the same weights on a CPU, interrupted or not: the batches
    are a function of (seed, step), and a checkpoint holds the state of the random generator.
    ``listener`` hears of losses and validations.  ``should_stop`` is asked after every step; true
    writes a checkpoint and raises `Interrupted`.  ``processes`` train together, each with a
    trainer of its own; only the first writes files.
    """

    def __init__(
        self,
        run: TrainingRun,
        machine: Machine | None = None,
        listener: Listener = ignore,
        should_stop: Callable[[], bool] = lambda: False,
        processes: Processes = ALONE,
    ) -> None:
        self.run, self.machine = run, machine or Machine()
        self.listener, self.should_stop, self.processes = listener, should_stop, processes
        self.model, self.recipe, self.train = run.model, run.recipe, run.train
        self.device = run.train.tokens.device
        self.precision = resolve_precision(self.recipe.precision, self.device, self.model.dim)
        self.total_steps = self.recipe.total_steps(len(self.train))
        self.order = BatchOrder(len(self.train), self.recipe.batch_size, run.seed)
        self.optimizer = build_optimizer(self.model, self.recipe, self.precision)
        decay = self.recipe.average_decay
        self.average = None if decay is None else MovingAverage(self.model, decay)
        self.state = TrainingState()
        self._loss_sum = torch.zeros((), dtype=torch.float64, device=self.device)
        self.graphs = self.machine.compile == "graphs"
        self.compiled = None
        # Core-seconds, whatever else the machine is busy with; a GPU works beside the process.
        self.clock = time.process_time if self.device.type == "cpu" else time.perf_counter
        self._booked = self.clock()  # until when `TrainingState.seconds` counts
        # Every shape is a compilation of its own: so only eager training on a CPU avoids padding.
        self.part_sizes: PartSizes | None = None
        self.width_step = 1
        if compiles(self.machine.compile, self.device):
            self.compiled = compiled_hidden(self.model, self.graphs)
            self.width_step = width_step(self.train.longest)
        elif self.device.type == "cpu":
            keep_freed_memory()
            self.part_sizes = ON_CPU[self.precision]

    def fit(self) -> TrainingState:
        """Train from the last checkpoint, if there is one, to the end.

        Raises `RunError` on divergence and `Interrupted` when told to stop.
        """
        self.resume()
        self._note_device()
        self.processes.copy_from_first(self.model)
        self.listener(TrainingStarts(self.state.step, self.total_steps))
        saved = time.monotonic()
        while self.state.stopped is None:
            self._advance()
            if self.state.stopped is None and self.processes.any(self.should_stop()):
                self.save()
                raise Interrupted
            if time.monotonic() - saved > self.machine.checkpoint_seconds:
                self.save()
                saved = time.monotonic()
        self.save()
        self.model.load_state_dict(self.evaluated.state_dict())
        return self.state

    @property
    def evaluated(self) -> Transformer:
        """The model that validation and evaluation look at: the average, where one is kept."""
        return self.model if self.average is None else self.average.model

    def _advance(self) -> None:
        """Take a step, tell of it where that is due, validate where that is due."""
        self._booked = self.clock()
        self.step()
        step = self.state.step
        validates = step % self.recipe.validate_every == 0 or step >= self.total_steps
        if validates or step % REPORT_EVERY == 0:
            loss = self._tell_loss()
            if validates:
                self._validate(loss)
        self._book_seconds()

    def _book_seconds(self) -> None:
        """Count what has passed since it was last called as training time."""
        now = self.clock()
        self.state.seconds += now - self._booked
        self._booked = now

    def step(self) -> None:
        """Update the weights once, by the gradient of the mean loss over one batch."""
        step = self.state.step
        self.optimizer.set_learning_rate(self._learning_rate(step))
        self.optimizer.zero_grad()  # before the memory of replayed gradients is used again
        self.processes.seed_step(self.run.seed, step)
        self.model.train()
        index = self.order.indices(step)
        num_targets = self.train.num_targets(index)
        # An epoch's last, incomplete batch is not worth a compilation.
        hidden = self.compiled if len(index) == self.order.batch_size else None
        loss = torch.zeros((), device=self.device)
        for part in self.parts(step):
            loss += self._add_gradients(part, num_targets, hidden)
        loss = self.processes.sum_gradients(self.model, loss)
        if self.recipe.gradient_clip is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.gradient_clip)
        self.optimizer.step()
        if self.average is not None:
            self.average.update(self.model, first=step == 0)
        self._loss_sum += loss
        self.state.step += 1

    def _add_gradients(
        self, index: Tensor, num_targets: int, hidden: Callable[[Tensor], Tensor] | None
    ) -> Tensor:
        """Add the gradient of what the sequences ``index`` (b,) contribute to the mean loss over
        the ``num_targets`` of the whole batch; return that contribution."""
        if self.graphs:
            torch.compiler.cudagraph_mark_step_begin()
        with autocast(self.precision, self.device):
            if self.part_sizes is not None:
                loss = packed_loss(self.model, self.train.packed(index, *self.part_sizes.steps))
            else:
                loss = masked_loss(self.model, self.train.batch(index, self.width_step), hidden)
            loss = loss * (self.train.num_targets(index) / num_targets)
        loss.backward()
        return loss.detach()

    def parts(self, step: int) -> list[Tensor]:
        """Return the sequences (b,) of batch ``step`` that this process holds at a time."""
        index = self.train.sorted_by_length(self.order.indices(step))
        own = self.processes.share(index)
        return parts_of(self.train, own, self.part_sizes, self.machine.micro_batch_size)

    def padded_share(self) -> float:
        """Return the share of padding among the input tokens of the first steps' batches."""
        steps = range(min(PADDING_STEPS, self.total_steps))
        parts = (part for step in steps for part in self.parts(step))
        return padded_share(self.train, parts, self.width_step, self.part_sizes)

    def _learning_rate(self, step: int) -> float:
        return self.recipe.learning_rate_at(step, self.total_steps)

    def _tell_loss(self) -> float:
        """Return the mean loss since the last validation; refuse to go on from NaN."""
        mean = float(self._loss_sum) / self.state.steps_since_validation
        if not math.isfinite(mean):
            raise RunError(f"training diverged: loss {mean} within {self.state.step} steps")
        self.listener(TrainingStep(self.state.step, self.total_steps, mean))
        return mean

    def _validate(self, train_loss: float) -> None:
        """Add a row to the learning curve; stop where the task is solved or the budget spent."""
        state, step = self.state, self.state.step
        loss, exact = validate(
            self.evaluated,
            self.run.validation,
            self.precision,
            min(VALIDATION_BATCH, self.machine.micro_batch_size or VALIDATION_BATCH),
            self.processes,
        )
        if not math.isfinite(loss):
            raise RunError(f"training diverged: validation loss {loss} at step {step}")
        rate = self._learning_rate(step - 1)
        self._book_seconds()  # the row's own step and validation are training time, too
        state.curve.append(Validation(step, state.seconds, train_loss, loss, exact, rate))
        self._loss_sum.zero_()
        self.listener(state.curve[-1])
        if self.recipe.stop_at is not None and exact >= self.recipe.stop_at:
            state.stopped = "solved"
        elif step >= self.total_steps:
            state.stopped = "budget"

    def save(self) -> None:
        """Write the checkpoint and the learning curve; only the first process does."""
        if not self.processes.first:
            return
        self._booked = self.clock()
        self.state.loss_sum = float(self._loss_sum)  # waits for steps: that is training time, too
        self._book_seconds()
        content = pack(self.model, self.optimizer, self.average, self.state)
        save_checkpoint(self.run.checkpoint_path, content)
        write_curve(self.run.folder / "curve.csv", self.state.curve)

    def resume(self) -> None:
        """Continue from the checkpoint in the run's folder; nothing to do when there is none.

        A damaged one is set aside with a warning, and training starts again: the result is the
        same, only later.
        """
        content = self.processes.from_first(self._read_checkpoint)
        if content is None:
            return
        changed = self.model, self.optimizer, self.average
        fresh = copy.deepcopy(pack(*changed, self.state))
        try:
            self.state = unpack(content, *changed, self.recipe, self.total_steps)
        except UserError as error:
            self.state = unpack(fresh, *changed, self.recipe, self.total_steps)
            if self.processes.first:
                self._set_checkpoint_aside(f"{self.run.checkpoint_path}: {error}")
        self._loss_sum.fill_(self.state.loss_sum)

    def _note_device(self) -> None:
        devices, name = self.state.devices, self.run.device_name
        if self.state.step and not devices:
            devices.append("unknown")  # an older checkpoint does not tell
        if self.state.stopped is None and name and name not in devices:
            devices.append(name)

    def _read_checkpoint(self) -> dict | None:
        if not self.run.checkpoint_path.exists():
            return None
        try:
            return load_checkpoint(self.run.checkpoint_path)
        except UserError as error:
            self._set_checkpoint_aside(str(error))
            return None

    def _set_checkpoint_aside(self, reason: str) -> None:
        path = self.run.checkpoint_path
        path.replace(path.with_suffix(".damaged"))
        print(f"warning: {reason}; set aside, training starts again", file=sys.stderr)


def write_curve(path: Path, curve: list[Validation]) -> None:
    """Write the learning curve as CSV, one row per validation."""
    rows = [",".join(CURVE_COLUMNS)]
    rows += [",".join(f"{value:.8g}" for value in astuple(row)) for row in curve]
    write_text(path, "\n".join(rows) + "\n")
