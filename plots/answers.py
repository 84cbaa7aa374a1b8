"""What the frontier's models were timed at: ``answers.json`` beside an experiment's table.

``python -m benchmarks answers experiment=NAME`` writes it, a row per task and size: the models of
that row were timed in one run, in turns, so they may be compared; models of two rows may not.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import UserError

FILE = "answers.json"
LISTS = ("answer_seconds", "tokens_per_second", "training_step_seconds")


@dataclass(frozen=True)
class Timed:
    """One model's figures, a number for each turn that the models took.

    CPU seconds of one thread: of an answer at batch 1, generated tokens in each of them at the
    larger batch, and of a training step.  ``weights`` are trained or untrained.
    """

    answer_seconds: tuple[float, ...]
    tokens_per_second: tuple[float, ...]
    training_step_seconds: tuple[float, ...]
    weights: str

    def median(self, name: str) -> float:
        """Return the median over the turns."""
        return statistics.median(getattr(self, name))


def read_answers(folder: Path | None) -> list[dict[str, Any]]:
    """Return the rows of ``folder``/answers.json, none where there is no file.

    Raises `UserError` where the file is damaged.
    """
    path = None if folder is None else folder / FILE
    if path is None or not path.exists():
        return []
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
        for row in rows:
            for model in row["models"]:
                _timed(model)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: damaged, must be JSON with rows of models ({error})") from None
    return rows


def timed_together(
    rows: Sequence[Mapping[str, Any]], cells: Mapping[str, Collection[str]]
) -> tuple[dict[str, Timed], Mapping[str, Any]]:
    """Return the figures of models that one row timed, by name, and that row; empty without one.

    ``cells`` names for each model the cells of which any may have been timed.  Of several rows, the
    one with most of the models counts.
    """
    best: tuple[dict[str, Timed], Mapping[str, Any]] = {}, {}
    for row in rows:
        by_cell = {model["cell"]: model for model in row["models"]}
        found = {
            name: _timed(by_cell[cell])
            for name, known in cells.items()
            for cell in known
            if cell in by_cell
        }
        if len(found) > len(best[0]):
            best = found, row
    return best


def timing_note(answers: Sequence[dict[str, Any]], experiment: str) -> str:
    """Return what a table or figure says of its timings, or how to make them."""
    if not answers:
        return (
            "Nothing was timed yet; python -m benchmarks answers "
            f"experiment={experiment} times the models at their least D."
        )

    def distinct(name: str) -> str:
        return ", ".join(sorted({str(row.get(name, "")) for row in answers}))

    return (
        f"Timed: greedy generation of a whole chain by prefill and step, float32, one thread, CPU "
        f"seconds, medians of {distinct('repeats')} turns that the models of a size take; an "
        f"answer at batch 1, tokens at batch {distinct('batch')}. {distinct('device')}, commit "
        f"{distinct('commit')}."
    )


def _timed(model: dict[str, Any]) -> Timed:
    turns = [tuple(float(value) for value in model[name]) for name in LISTS]
    if len({len(turn) for turn in turns}) != 1 or not turns[0] or min(map(min, turns)) <= 0:
        raise ValueError(f"cell {model['cell']}: as many positive numbers of each kind")
    return Timed(turns[0], turns[1], turns[2], str(model["weights"]))
