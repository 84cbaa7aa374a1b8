"""What one sees while a cell runs and when it is done."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from tqdm import tqdm

from config.columns import described, settings_of, varying
from config.grid import Cell
from config.schema import CellConfig
from training.events import Evaluated, Event, TrainingStarts, TrainingStep, Validation

TOLD_EVERY = 60.0  # seconds between lines where there is no terminal


class CellProgress:
    """A progress bar for one cell; without a terminal, a line at its start and every minute.

    Silent for one of several cells at once.
    """

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled and "COTCOST_WORKER" not in os.environ
        self._terminal = sys.stderr.isatty()
        self._bar: tqdm | None = None
        self._phase = ""
        self._chains = 0.0
        self._told = time.monotonic()

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
            case TrainingStarts(step, steps) if not self._terminal:
                goes_on = f" continues after step {step:,}," if step else ""
                self._say(f"training:{goes_on} at most {steps:,} steps")
            case TrainingStep(step, steps, loss):
                shown = {"loss": f"{loss:.4f}", "chains": f"{self._chains:.1%}"}
                self._show(step, steps, "training", shown)
            case Evaluated(done, total):
                self._show(done, total, "evaluating", {})

    def _show(self, done: int, total: int, what: str, shown: dict[str, str]) -> None:
        if not self._terminal:
            if time.monotonic() - self._told >= TOLD_EVERY:
                details = [f"{name} {value}" for name, value in shown.items()]
                self._say(", ".join([f"{what}: {done:,} of {total:,}", *details]))
            return
        if self._bar is None or self._phase != what:
            if self._bar is not None:
                self._bar.close()
            self._phase = what
            self._bar = tqdm(total=total, desc=what, initial=done, leave=False)
        self._bar.set_postfix(shown, refresh=False)
        self._bar.update(done - self._bar.n)

    def _say(self, line: str) -> None:
        self._told = time.monotonic()
        print(line, file=sys.stderr, flush=True)


def which_cell(config: CellConfig, besides: str = "") -> str:
    """Return the few words that tell a cell from others; ``besides`` as `besides` returns it."""
    which = described(config)
    words = "{task} n={size} {model} D={dim}".format(**which)
    words = " ".join(filter(None, [words, besides, f"seed={which['seed']}"]))
    trained = config.task["size"]
    return words if which["size"] == trained else f"{words} (trained at n={trained})"


def besides(cells: Sequence[Cell]) -> dict[str, str]:
    """Return by its name what tells a cell from the others, beside what `which_cell` says.

    Such as "layers=2 task.monoid=A5"; empty where the few words are enough.
    """
    rows = [(described(cell.config), settings_of(cell.resolved)) for cell in cells]
    columns = ("format", "layers", "heads", "recipe")
    differing = [name for name in columns if len({which[name] for which, _ in rows}) > 1]
    keys = [key for key in varying(rows) if key not in ("task.size", "task.format")]
    found = {}
    for cell, (which, settings) in zip(cells, rows, strict=True):
        words = [f"{name}={which[name]}" for name in differing]
        words += [f"{key}={settings[key]}" for key in keys if key in settings]
        found[cell.name] = " ".join(words)
    return found


def summary_line(config: CellConfig, record: dict[str, Any] | None, besides: str = "") -> str:
    """Return one line that says which cell it was and what came of it."""
    which = which_cell(config, besides)
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
