"""The training loop of one cell: masked loss, validation, checkpoints, exact resume."""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from errors import RunError, UserError
from files import write_text
from models.transformer import Transformer
from training.average import MovingAverage
from training.batches import Batch, BatchOrder, SequenceTensors
from training.checkpoint import load_checkpoint, save_checkpoint
from training.compile import Backend, compiled_hidden, width_step
from training.distributed import ALONE, Processes
from training.optimizers import build_optimizer
from training.precision import autocast, resolve_precision
from training.recipe import Recipe

REPORT_EVERY = 50
CURVE_COLUMNS = (
    "step",
    "seconds",
    "train_loss",
    "validation_loss",
    "validation_chain_exact_match",
    "learning_rate",
)


class Interrupted(Exception):
    """Training was told to stop; its checkpoint is written and continues later."""


@dataclass
class TrainingState:
    """What training has come to: written into every checkpoint.

    ``seconds`` is time spent training and validating, over all interruptions; ``stopped`` is
    ``solved`` or ``budget`` once training is over; ``loss_sum`` and ``loss_count`` are over the
    steps since the last validation.
    """

    step: int = 0
    seconds: float = 0.0
    stopped: str | None = None
    curve: list[list[float]] = field(default_factory=list)
    loss_sum: float = 0.0
    loss_count: int = 0


class Trainer:
    """Trains ``model`` on ``train`` by ``recipe``.

    Same seed and configuration give the same weights on a CPU, interrupted or not: the batches
    are a function of (seed, step), and a checkpoint holds the state of the random generator.
    ``should_stop`` is asked after every step; true writes a checkpoint and raises `Interrupted`.
    ``processes`` train together, each with a trainer of its own; only the first writes files.
    With ``compile_backend`` the forward pass is compiled by it, and batches have few widths; with
    ``cuda_graphs`` it is replayed besides.  With ``micro_batch_size`` no more sequences are held at
    a time, and their gradients are summed up: the same batch in less memory.
    """

    def __init__(
        self,
        model: Transformer,
        recipe: Recipe,
        train: SequenceTensors,
        validation: SequenceTensors,
        seed: int,
        folder: Path,
        checkpoint_seconds: float = 60,
        report: Callable[[dict[str, Any]], None] = lambda values: None,
        should_stop: Callable[[], bool] = lambda: False,
        processes: Processes = ALONE,
        compile_backend: Backend | None = None,
        cuda_graphs: bool = False,
        micro_batch_size: int | None = None,
    ) -> None:
        self.model = model
        self.recipe = recipe
        self.train_set = train
        self.validation_set = validation
        self.folder = folder
        self.checkpoint_seconds = checkpoint_seconds
        self.report = report
        self.should_stop = should_stop
        self.processes = processes
        self.seed = seed
        self.device = train.tokens.device
        self.dim = model.dim
        self.precision = resolve_precision(recipe.precision, self.device, self.dim)
        self.total_steps = recipe.total_steps(len(train))
        self.order = BatchOrder(train.lengths, recipe.batch_size, seed)
        self.optimizer = build_optimizer(model, recipe, self.precision)
        self.average = averaged(model, recipe.average_decay)
        self.state = TrainingState()
        self._loss_sum = torch.zeros((), dtype=torch.float64, device=self.device)
        self.hidden: Callable[[Tensor], Tensor] = model.hidden
        self.width_step = 1
        self.cuda_graphs = cuda_graphs
        self.micro_batch_size = micro_batch_size
        if compile_backend is not None:
            self.hidden = compiled_hidden(model, compile_backend, cuda_graphs)
            self.width_step = width_step(train.longest)

    def fit(self) -> TrainingState:
        """Train from the last checkpoint, if there is one, to the end.

        Raises `RunError` on divergence and `Interrupted` when told to stop.
        """
        self.resume()
        self.processes.copy_from_first(self.model)
        last_saved = time.monotonic()
        while self.state.stopped is None:
            started = time.perf_counter()
            self._one_step()
            if self.state.step % REPORT_EVERY == 0:
                self._report_loss()
            if self._at_validation():
                self._validate()
            due = time.monotonic() - last_saved > self.checkpoint_seconds
            if due:
                float(self._loss_sum)  # what the device has still to do is training time, too
            self.state.seconds += time.perf_counter() - started
            if self.state.stopped is None and self.processes.any(self.should_stop()):
                self.save()
                raise Interrupted
            if due:
                self.save()
                last_saved = time.monotonic()
        self.save()
        self.model.load_state_dict(self.evaluated.state_dict())
        return self.state

    @property
    def evaluated(self) -> Transformer:
        """The model that validation and evaluation look at: the average, where one is kept."""
        return self.model if self.average is None else self.average.model

    def _one_step(self) -> None:
        state = self.state
        rate = self.recipe.learning_rate_at(state.step, self.total_steps)
        self.optimizer.set_learning_rate(rate)
        index = self.order.indices(state.step)
        own, weight = self.processes.share(index, self.train_set.num_targets)
        self.optimizer.zero_grad()  # before the memory of replayed gradients is used again
        self.processes.seed_step(self.seed, state.step)
        self.model.train()
        whole = len(index) == self.order.batch_size  # no compilation for an epoch's last batch
        loss = torch.zeros((), device=self.device)
        for part, share in self._parts(own):
            loss += self._gradients(part, weight * share, self.hidden if whole else None)
        loss = self.processes.sum_gradients(self.model, loss)
        if self.recipe.gradient_clip is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.gradient_clip)
        self.optimizer.step()
        if self.average is not None:
            self.average.update(self.model, first=state.step == 0)
        self._loss_sum += loss
        state.loss_count += 1
        state.step += 1

    def _parts(self, index: Tensor) -> Iterator[tuple[Tensor, float]]:
        """Yield the sequences to hold at a time, and the weight of their mean loss in that of all
        of ``index`` (B,)."""
        targets = self.train_set.num_targets
        for part in index.split(self.micro_batch_size or len(index)):
            yield part, targets(part) / targets(index)

    def _gradients(
        self, index: Tensor, weight: float, hidden: Callable[[Tensor], Tensor] | None
    ) -> Tensor:
        """Add the gradient of the weighted mean loss on ``index`` (B,); return that loss."""
        if self.cuda_graphs:
            torch.compiler.cudagraph_mark_step_begin()
        with autocast(self.precision, self.device):
            batch = self.train_set.batch(index, self.width_step)
            loss = weight * masked_loss(self.model, batch, hidden)
        loss.backward()
        return loss.detach()

    def _report_loss(self) -> float:
        """Return the mean loss since the last validation; refuse to go on from NaN."""
        mean = float(self._loss_sum) / max(1, self.state.loss_count)
        if not math.isfinite(mean):
            raise RunError(f"training diverged: loss {mean} within {self.state.step} steps")
        self.report({"step": self.state.step, "steps": self.total_steps, "train_loss": mean})
        return mean

    def _at_validation(self) -> bool:
        step = self.state.step
        return step % self.recipe.validate_every == 0 or step >= self.total_steps

    def _validate(self) -> None:
        state = self.state
        train_loss = self._report_loss()
        self._loss_sum.zero_()
        state.loss_count = 0
        loss, exact = validate(
            self.evaluated, self.validation_set, self.precision, processes=self.processes
        )
        if not math.isfinite(loss):
            raise RunError(f"training diverged: validation loss {loss} at step {state.step}")
        rate = self.recipe.learning_rate_at(state.step - 1, self.total_steps)
        state.curve.append([state.step, state.seconds, train_loss, loss, exact, rate])
        self.report(dict(zip(CURVE_COLUMNS, state.curve[-1], strict=True)))
        if self.recipe.stop_at is not None and exact >= self.recipe.stop_at:
            state.stopped = "solved"
        elif state.step >= self.total_steps:
            state.stopped = "budget"

    @property
    def checkpoint_path(self) -> Path:
        """Where the latest checkpoint lies."""
        return self.folder / "checkpoint.pt"

    def save(self) -> None:
        """Write the checkpoint and the learning curve; only the first process does."""
        if not self.processes.first:
            return
        self.state.loss_sum = float(self._loss_sum)
        content = {
            "model": self.evaluated.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random": torch.get_rng_state(),
            "state": dataclasses.asdict(self.state),
        }
        if self.average is not None:
            content["trained"] = self.model.state_dict()
        if self.device.type == "cuda":
            content["random_cuda"] = torch.cuda.get_rng_state(self.device)
        save_checkpoint(self.checkpoint_path, content)
        write_curve(self.folder / "curve.csv", self.state.curve)

    def resume(self) -> None:
        """Continue from the checkpoint in the run's folder; nothing to do when there is none.

        A damaged one is set aside with a warning, and training starts again: the result is the
        same, only later.
        """
        content = self.processes.from_first(self._read_checkpoint)
        if content is None:
            return
        self.model.load_state_dict(content.get("trained", content["model"]))
        if self.average is not None:
            self.average.model.load_state_dict(content["model"])
        self.optimizer.load_state_dict(content["optimizer"])
        torch.set_rng_state(content["random"].cpu())
        if "random_cuda" in content and self.device.type == "cuda":
            torch.cuda.set_rng_state(content["random_cuda"].cpu(), self.device)
        self.state = TrainingState(**content["state"])
        self._loss_sum.fill_(self.state.loss_sum)

    def _read_checkpoint(self) -> dict[str, Any] | None:
        if not self.checkpoint_path.exists():
            return None
        try:
            return load_checkpoint(self.checkpoint_path)
        except UserError as error:
            aside = self.checkpoint_path.with_suffix(".damaged")
            self.checkpoint_path.replace(aside)
            print(f"warning: {error}; set aside, training starts again", file=sys.stderr)
            return None


def averaged(model: Transformer, decay: float | None) -> MovingAverage | None:
    """Return the exponential moving average of the weights to come; None without a decay."""
    if decay is None:
        return None
    return MovingAverage(model, decay)


def masked_loss(
    model: Transformer, batch: Batch, hidden: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """Return the mean cross-entropy over the targets after the prompt (chain, answer, EOS).

    The head runs at those positions only: logits are (targets, V), not (B, T, V).  ``hidden``
    takes the place of ``model.hidden``.
    """
    states = (hidden or model.hidden)(batch.tokens[:, :-1])  # (B, T, D)
    logits = model.head(batch.at_targets(states))  # (targets, V)
    return F.cross_entropy(logits.float(), batch.at_targets(batch.tokens[:, 1:]))


@torch.no_grad()
def validate(
    model: Transformer,
    sequences: SequenceTensors,
    precision: str,
    batch_size: int = 256,
    processes: Processes = ALONE,
) -> tuple[float, float]:
    """Return (mean loss per target, share of sequences without a wrong arg-max).

    A chain whose every arg-max under teacher forcing is right is the chain that free greedy
    generation writes, so the second figure is `chain_exact_match` on the validation set.  Each of
    ``processes`` looks at its share of the sequences; all return the figures of the whole.
    """
    model.eval()
    device = sequences.tokens.device
    order = torch.argsort(sequences.host_lengths)[processes.rank :: processes.size]
    targets = 0
    loss_sum, exact = torch.zeros(2, dtype=torch.float64, device=device)  # read once, at the end
    with autocast(precision, device):
        for start in range(0, len(order), batch_size):
            batch = sequences.batch(order[start : start + batch_size])
            gold = batch.at_targets(batch.tokens[:, 1:])  # (targets,)
            hidden = model.hidden(batch.tokens[:, :-1])
            logits = model.head(batch.at_targets(hidden)).float()  # (targets, V)
            loss_sum += F.cross_entropy(logits, gold, reduction="sum")
            targets += len(gold)
            wrong = torch.zeros_like(batch.loss_mask)  # (B, T)
            wrong.view(-1)[batch.counted] = logits.argmax(-1) != gold
            exact += (~wrong.any(dim=1)).sum()
    all_loss, all_targets, all_exact = processes.sum_numbers(float(loss_sum), targets, float(exact))
    return all_loss / all_targets, all_exact / len(sequences)


def write_curve(path: Path, curve: list[list[float]]) -> None:
    """Write the learning curve as CSV, one row per validation."""
    rows = [",".join(CURVE_COLUMNS)]
    rows += [",".join(f"{value:.8g}" for value in row) for row in curve]
    write_text(path, "\n".join(rows) + "\n")
