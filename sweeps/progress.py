"""What one sees while a cell runs and when it is done."""

from __future__ import annotations

import os
import sys
from typing import Any

from tqdm import tqdm

from config.columns import described
from config.schema import CellConfig
from training.events import Evaluated, Event, TrainingStep, Validation


class CellProgress:
    """A progress bar for one cell; silent when not a terminal, or one of several at once."""

    def __init__(self, enabled: bool) -> None:
        alone = "COTCOST_WORKER" not in os.environ
        self._enabled = enabled and alone and sys.stderr.isatty()
        self._bar: tqdm | None = None
        self._chains = 0.0

    def __enter__(self) -> CellProgress:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def __call__(self, event: Event) -> None:
        """Show ``event``."""
        if not self._enabled:
            return
        match event:
            case Validation():
                self._chains = event.validation_chain_exact_match
            case TrainingStep(step, steps, loss):
                shown = {"loss": f"{loss:.4f}", "chains": f"{self._chains:.1%}"}
                self._show(step, steps, "training", shown)
            case Evaluated(done, total):
                self._show(done, total, "evaluating", {})

    def _show(self, done: int, total: int, what: str, shown: dict[str, str]) -> None:
        if self._bar is None or self._bar.desc != f"{what}: ":
            if self._bar is not None:
                self._bar.close()
            self._bar = tqdm(total=total, desc=what, initial=done, leave=False)
        self._bar.set_postfix(shown, refresh=False)
        self._bar.update(done - self._bar.n)


def which_cell(config: CellConfig) -> str:
    """Return the few words that tell a cell from others."""
    words = "{task} n={size} {model} D={dim} seed={seed}".format(**described(config))
    trained = config.task["size"]
    return words if described(config)["size"] == trained else f"{words} (trained at n={trained})"


def summary_line(config: CellConfig, record: dict[str, Any] | None) -> str:
    """Return one line that says which cell it was and what came of it."""
    which = which_cell(config)
    if record is None:
        return f"{which}: another process works on this cell; left to it"
    if record["status"] != "done":
        return f"{which}: {record['status']} ({record['reason']})"
    trained = ""
    if record.get("steps") is not None:
        trained = (
            f"{record['steps']} steps ({record['stopped']}), {record['train_seconds']:.0f} s + "
        )
    return (
        f"{which}: answer {record['answer_accuracy']:.2%} "
        f"[{record['answer_accuracy_low']:.2%}, {record['answer_accuracy_high']:.2%}], "
        f"chain {record['chain_exact_match']:.2%}, {trained}"
        f"{record['eval_seconds']:.1f} s evaluation, cell {record['cell']}"
    )
