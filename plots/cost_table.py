"""What 90 % costs in everything a user pays: FLOPs, state, seconds an answer, training.

Per task, size and model at its least D, a column for each currency with its winner in bold, and a
sentence under each size: does the efficient model save computation, and in which currency?
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from plots import least_dim_rows, tabular
from plots.answers import read_answers, timing_note
from plots.budgets import MARK, NOTE, YES, of_grid
from plots.cells import Grid, gather, records
from plots.cost_rows import rows
from plots.currencies import CURRENCIES, NONE
from plots.frontier import UNMEASURED
from plots.savings_text import sentences
from plots.tabular import Tabular, plain
from plots.words import notes_of, seeds_text

NAME = "cost_table"
DEFINITIONS = (
    "Bold: the best of its column among the models of a size that reach 90 % and were measured, "
    "where there are two or more; of what was timed, each that did not lose every turn to it. "
    f"{NONE}: not measured. ",
    "Linear-layer GFLOPs (the paper's convention) and total GFLOPs: one forward pass over L "
    "tokens. State: what generation keeps of L tokens of one sequence, in float32 (the KV cache). ",
    "Training to 90 %: until 90 % of the validation chains are right under teacher forcing "
    "(steps_to_90), where the upper median seed gets there. TFLOPs: flops_training, which counts "
    "all steps made without padding, times steps_to_90 / steps. Core-seconds: steps_to_90 times "
    "the timed seconds of a training step, without validation. As run: seconds_to_90 of the "
    "sweep, with validation: core-seconds on a CPU, in tables of older commits wall seconds.",
)


def draw(table: pd.DataFrame, plan: pd.DataFrame, experiment: Any, out: Path) -> list[Path]:
    """Write ``cost_table.csv``, ``.md`` and ``.tex``; ``answers.json`` lies beside ``out``."""
    grid = gather(table, plan)
    answers = read_answers(out.parent)
    frame = rows(grid, of_grid(grid, out.parent), answers)
    printed = printed_table(frame, grid, experiment, answers)
    return tabular.write(printed.texts(frame), out, NAME)


HEADER = ["task", "n", "L", "model", "D", *(item.heading for item in CURRENCIES.values())]
HEADER += ["seeds", "limited by budget"]


def printed_table(
    frame: pd.DataFrame, grid: Grid, experiment: Any, answers: Sequence[dict[str, Any]] = ()
) -> _CostTable:
    """Return the table as it is printed, with the sentences under it."""
    first = HEADER.index(next(iter(CURRENCIES.values())).heading)
    marked = {
        (y, first + x)
        for y, line in enumerate(frame.to_dict("records"))
        for x, name in enumerate(CURRENCIES)
        if line[f"best_{name}"] == "yes"
    }
    return _CostTable(
        title=f"Cost to 90 %: {experiment.name}",
        label=tabular.label_of("cost", experiment.name),
        caption="What the model of least D costs that reaches an answer accuracy of 90 %.",
        header=HEADER,
        rows=[_printed(line) for line in records(frame)],
        notes=_notes(frame, grid, experiment, answers),
        said=sentences(frame),
        marked=marked,
    )


class _CostTable(Tabular):
    """The printed table; its CSV lacks what is no value."""

    def texts(self, frame: pd.DataFrame) -> dict[str, str]:
        return super().texts(frame.drop(columns=["timed", "group", "name"]))


def _printed(line: Any) -> list[str | None]:
    start = [line.task, str(line.size), plain(line.max_len), line.model]
    if line.state != "reached":
        told = least_dim_rows.cells_of(line)[0]
        return [
            *start,
            told,
            *[None if line.state not in UNMEASURED else ""] * len(CURRENCIES),
            "",
            "",
        ]
    bound = "≤ " if line.smaller_unmeasured else ""
    values = [
        (bound if name in ("flops_linear_layers", "flops_total", "state_bytes") else "")
        + currency.text(getattr(line, name))
        for name, currency in CURRENCIES.items()
    ]
    dim = f"{bound}{line.dim}{MARK if line.limited_by_budget == YES else ''}"
    return [*start, dim, *values, line.evidence, line.limited_by_budget]


def _notes(
    frame: pd.DataFrame, grid: Grid, experiment: Any, answers: Sequence[dict[str, Any]]
) -> list[str]:
    notes = [
        f"D: as in flops_table, the least that reaches it ({seeds_text(grid.cells)}). "
        + "".join(DEFINITIONS),
        timing_note(answers, experiment.name),
    ]
    if frame["limited_by_budget"].isin([YES, "no", "unknown"]).any():
        notes.append(NOTE)
    if experiment.budget:
        notes.append(f"Budget: {experiment.budget.strip().rstrip('.')}.")
    return [*notes, *notes_of(grid)]
