"""Models, data and training for benchmarks: the only place that knows the trainer."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from config.build import build_task, initial_model
from config.compose import compose_plain
from config.schema import CellConfig, validate_cell
from instantiate import locate
from torch import Tensor

from common import RunError
from models.linear import LinearAttention
from models.mixer import Mixer
from models.sparse import SparseAttention
from models.standard import StandardAttention
from models.transformer import Transformer
from tasks.data import DataSpec, load_or_build
from tasks.task import SequenceSet, Task
from training.batches import SequenceTensors
from training.events import Event, Listener, Validation, ignore
from training.loss import masked_loss
from training.machine import LONGEST_CHECKPOINT_SECONDS, Machine
from training.precision import autocast
from training.recipe import Recipe
from training.trainer import Interrupted, Trainer, TrainingRun

CPU = torch.device("cpu")
MIXERS: dict[str, Callable[..., Any]] = {
    "standard": StandardAttention,
    "sparse": SparseAttention,
    "linear": LinearAttention,
}
MODELS = tuple(MIXERS)
# Small cells in which recipes are compared: the task's keys.  With the paper's 250 numbers, LIS
# takes several times as long.
BASKET = {
    "arithmetic": "task.size=3",
    "lis": "task.size=8 task.number_range=40",
    "ed": "task.size=2",
}
BASKET_DATA = "data.train=100000 data.validation=500 data.test=500"
# With one block of 4 no position sees both letters of a far pair, and ED stalls.
BASKET_MODEL = {("ed", "sparse"): "model.mixer.window_blocks=2"}


@functools.lru_cache(maxsize=1000)
def cell_config(words: str) -> CellConfig:
    """Return the configuration of ``python train.py WORDS``, without W&B."""
    return validate_cell(compose_plain("train", ["logger=none", *words.split()]))


def basket_config(task: str, model: str, dim: int, seed: int, words: str = "") -> CellConfig:
    """Return a cell of the basket by ``recipe=fast``, changed by ``words``."""
    config = cell_config(
        f"task={task} {BASKET[task]} model={model} {BASKET_MODEL.get((task, model), '')} "
        f"recipe=fast recipe.stop_at=null {BASKET_DATA} {words}"
    )
    resized = dataclasses.replace(config.model, dim=dim)
    return dataclasses.replace(config, model=resized, seed=seed)


def build_model(
    name: str, vocab_size: int, max_len: int, dim: int, dropout: float = 0.0
) -> Transformer:
    """Return a model of three layers and four heads, the same at every call."""
    torch.manual_seed(0)
    return Transformer(vocab_size, max_len, dim, 3, 4, MIXERS[name], dropout)


def mixers_of(name: str, dim: int, num_heads: int, max_len: int) -> list[Mixer]:
    """Return the mixer of conf/model/NAME.yaml, or those that its layers take in turn."""
    model = cell_config(f"model={name}").model
    made = []
    for settings in model.mixers or [model.mixer or {}]:
        own = dict(settings)
        cls = locate(own.pop("_target_", None), f"model {name}", Mixer)
        made.append(cls(dim, num_heads, max_len, **own))
    return made


def training_mixture(task: Task, count: int) -> SequenceSet:
    """Return about ``count`` sequences in the task's training mixture of sizes."""
    mixture = task.training_mixture().items()
    parts = [task.draw(0, 2, 0, round(count * share), size=size) for size, share in mixture]
    return SequenceSet(
        np.concatenate([part.tokens for part in parts]),
        np.concatenate([part.lengths for part in parts]),
        np.concatenate([part.prompt_lengths for part in parts]),
    )


def build_trainer(
    model: Transformer,
    recipe: Recipe,
    train: SequenceSet,
    validation: SequenceSet,
    folder: Path,
    *,
    seed: int = 0,
    compile: str | bool = False,
    listener: Listener = ignore,
    should_stop: Callable[[], bool] = lambda: False,
) -> Trainer:
    """Return a trainer on the model's device; ``compile`` is false, true or "graphs"."""
    device = next(model.parameters()).device
    sets = SequenceTensors(train, device), SequenceTensors(validation, device)
    run = TrainingRun(model, recipe, seed, *sets, folder)
    machine = Machine(
        device=str(device), compile=compile, checkpoint_seconds=LONGEST_CHECKPOINT_SECONDS
    )
    return Trainer(run, machine, listener, should_stop)


def train_to(
    stop_at: int | None,
    model: Transformer,
    recipe: Recipe,
    train: SequenceSet,
    validation: SequenceSet,
    folder: Path,
) -> None:
    """Train from the folder's checkpoint, if any, to the end, or to step ``stop_at`` as an
    interruption does."""
    trainer = build_trainer(
        model, recipe, train, validation, folder,
        should_stop=lambda: trainer.state.step == stop_at,
    )  # fmt: skip
    with contextlib.suppress(Interrupted):
        trainer.fit()


def training_loss(model: Transformer, sequences: SequenceSet, precision: str) -> Tensor:
    """Return the trainer's loss of one batch of all ``sequences``, on the model's device."""
    device = next(model.parameters()).device
    batch = SequenceTensors(sequences, device).batch(torch.arange(len(sequences)))
    with autocast(precision, device):
        return masked_loss(model, batch)


def training_step(
    model: Transformer, recipe: Recipe, train: SequenceSet, compile: str | bool = False
) -> Callable[[], None]:
    """Return a function that makes the trainer's next whole update."""
    trainer = build_trainer(model, recipe, train, train, Path(), compile=compile)
    return trainer.step


class Training:
    """A cell's training, followed until ``is_solved(model, validation set, share of right
    validation chains)``, or until its limits.

    ``ended`` tells how: solved, out of time, out of steps, or the error.  ``seconds`` are CPU
    seconds of training and validation up to the last validation, without those of ``is_solved``.
    """

    def __init__(
        self,
        config: CellConfig,
        is_solved: Callable[[Transformer, SequenceSet, float], bool],
        limit_seconds: float = math.inf,
        limit_steps: float = math.inf,
    ) -> None:
        self.is_solved, self.solved = is_solved, False
        self.limit_seconds, self.limit_steps = limit_seconds, limit_steps
        self.seconds = self.best_chain = self._looking = 0.0
        task, data = build_task(config.task), config.data
        spec = DataSpec(data.train, data.validation, data.test, data.seed, config.data_dir)
        sets = load_or_build(task, spec, progress=False)
        self.validation = sets.validation
        with tempfile.TemporaryDirectory() as folder:
            self.trainer = build_trainer(
                initial_model(config, task, CPU), config.recipe, sets.train, sets.validation,
                Path(folder), seed=config.seed, listener=self._look, should_stop=self._over,
            )  # fmt: skip
            self._began = time.process_time()
            self.ended = self._fit()

    @property
    def steps(self) -> int:
        """Steps made so far."""
        return self.trainer.state.step

    @property
    def precision(self) -> str:
        """The number format of its products."""
        return self.trainer.precision

    def _fit(self) -> str:
        try:
            self.trainer.fit()
        except Interrupted:
            if not self.solved and self.steps < self.limit_steps:
                return "out of time"
        except RunError as error:
            return str(error)
        return "solved" if self.solved else "out of steps"

    def _spent(self) -> float:
        return time.process_time() - self._began - self._looking

    def _over(self) -> bool:
        limited = self.steps >= self.limit_steps or self._spent() > self.limit_seconds
        return self.solved or limited

    def _look(self, event: Event) -> None:
        if not isinstance(event, Validation):
            return
        chain = event.validation_chain_exact_match
        self.seconds = self._spent()
        self.best_chain = max(self.best_chain, chain)
        begun = time.process_time()
        self.solved |= self.is_solved(self.trainer.evaluated, self.validation, chain)
        self._looking += time.process_time() - begun
