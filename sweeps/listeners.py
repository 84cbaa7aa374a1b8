"""Passing a running cell's news on: heartbeat file, W&B, progress bar."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from records.folders import CellFolder
from sweeps.wandb_mirror import Tracker
from training.events import (
    Evaluated,
    Event,
    Listener,
    Phase,
    TrainingStarts,
    TrainingStep,
    Validation,
)

HEARTBEAT_SECONDS = 1.0


class Listeners:
    """Hears every event of one cell and tells those who want to know."""

    def __init__(self, cell: CellFolder, tracker: Tracker, other: Listener) -> None:
        self.cell, self.tracker, self.other = cell, tracker, other
        self._known: dict[str, Any] = {}
        self._written = 0.0

    def __call__(self, event: Event) -> None:
        """Pass ``event`` on; the heartbeat is written once a second, and at every new phase."""
        self.other(event)
        self._known |= heartbeat(event)
        if isinstance(event, Validation):
            self.tracker.log(dataclasses.asdict(event))
        if isinstance(event, Phase) or time.monotonic() - self._written > HEARTBEAT_SECONDS:
            self._written = time.monotonic()
            self.cell.write_progress(**self._known)


def heartbeat(event: Event) -> dict[str, Any]:
    """Return what a heartbeat says of ``event``."""
    match event:
        case Phase(name):
            return {"phase": name}
        case TrainingStarts(step, steps):
            return {"step": step, "steps": steps}
        case TrainingStep(step, steps, loss):
            return {"step": step, "steps": steps, "train_loss": loss}
        case Evaluated(done, total):
            return {"evaluated": done, "of": total}
        case Validation():
            names = ("step", "validation_chain_exact_match", "learning_rate")
            return {name: getattr(event, name) for name in names}
