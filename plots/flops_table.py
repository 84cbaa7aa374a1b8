"""Least FLOPs for 90 % (the paper's Table 2), under both conventions, beside the paper's numbers.

One forward pass over L tokens, 2 FLOPs per multiply-add.  ``linear layers`` counts the blocks'
linear layers alone, 2 * 12 * M * D^2 * L, which is what the paper's numbers are; ``total`` counts
the token mixing, the embedding's head and all else too, that is the very cost in which the
efficient models differ.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from plots import tabular
from plots.budgets import NOTE, YES, of_grid
from plots.cells import Grid, gather, records
from plots.least_dim_rows import CRITERION, caveat, cells_of, rows
from plots.tabular import Tabular, plain, significant
from plots.words import notes_of, seeds_text


def draw(table: pd.DataFrame, plan: pd.DataFrame, experiment: Any, out: Path) -> list[Path]:
    """Write ``flops_table.csv``, ``.md`` and ``.tex`` and return their paths."""
    grid = gather(table, plan)
    frame = rows(grid, of_grid(grid, out.parent))
    printed = printed_table(frame, sentences(grid, frame), grid, experiment)
    return tabular.write(printed.texts(frame), out, "flops_table")


def sentences(grid: Grid, frame: pd.DataFrame | None = None) -> list[str]:
    """Say which model is cheapest per size under each convention, and whether it changes."""
    frame = rows(grid) if frame is None else frame
    said = []
    changed: list[str] = []
    compared = 0
    for (column, size), part in frame.groupby(["task", "size"], sort=False):
        where = f"{column}, n = {size}"
        text, verdict = _verdict(where, part)
        said.append(text)
        compared += verdict is not None
        if verdict:
            changed.append(f"{where} ({verdict})")
    return [*said, _conclusion(changed, compared)]


def _verdict(where: str, part: pd.DataFrame) -> tuple[str, str | None]:
    """Return the sentence and, when two models can be compared, what changes ("" for nothing)."""
    reached = part[part["state"] == "reached"]
    plain_order, total = (
        list(records(reached.assign(flops=reached[name]).sort_values("flops", kind="stable")))
        for name in ("gflops_linear_layers", "gflops_total")
    )
    but = caveat(part)
    if not plain_order:
        return f"{where}: no model reaches 90 %{but}.", None
    text = (
        f"{where}: cheapest by linear layers {_winner(plain_order)}, by total {_winner(total)}"
        f"{but}."
    )
    if len(plain_order) < 2:
        return text, None
    first, second = _ranking(plain_order), _ranking(total)
    return text, "" if first == second else f"{first} becomes {second}"


def _ranking(found: Sequence[Any]) -> str:
    """Return the models from cheap to dear, e.g. ``Standard = Sparse < Linear``."""
    text = str(found[0].model)
    for before, line in itertools.pairwise(found):
        text += f" {'=' if line.flops == before.flops else '<'} {line.model}"
    return text


def _winner(found: Sequence[Any]) -> str:
    best = found[0]
    names = " and ".join(line.model for line in found if line.flops == best.flops)
    return f"{names} ({significant(best.flops)} GFLOPs, D = {best.dim})"


def _conclusion(changed: list[str], compared: int) -> str:
    if not compared:
        return "No size has two models at 90 %, so nothing can be said of the order of models."
    sizes = "1 size" if compared == 1 else f"{compared} sizes"
    if not changed:
        return (
            "Counting the mixing changes neither the cheapest model nor the order of the models "
            f"that reach 90 % (compared at {sizes} where two or more do)."
        )
    return (
        f"Counting the mixing changes the order of the models that reach 90 % at {len(changed)} "
        f"of the {sizes} where two or more do: {'; '.join(changed)}."
    )


HEADER = [
    "task", "n", "L", "model", "D", "linear layers", "total", "from", "single runs",
    "limited by budget", "D at ¼, ½, all", "paper", "paper D", "paper L",
]  # fmt: skip


def _printed(frame: pd.DataFrame) -> list[list[str | None]]:
    return [
        [
            line.task, str(line.size), plain(line.max_len), line.model, *cells_of(line),
            line.evidence, _interval(line), line.limited_by_budget, _at_parts(line),
            "" if np.isnan(line.paper_gflops) else f"{line.paper_gflops:.3f}",
            plain(line.paper_dim), plain(line.paper_length),
        ]
        for line in records(frame)
    ]  # fmt: skip


def _interval(line: Any) -> str:
    """Return between which D single runs put the least one, of a confirmed least D."""
    if line.confirmed != "yes" or pd.isna(line.dim_low):
        return ""
    high = "larger" if pd.isna(line.dim_high) else line.dim_high
    return f"{line.dim_low} to {high}"


def _at_parts(line: Any) -> str:
    parts = [line.dim_quarter_budget, line.dim_half_budget, line.dim_all_budget]
    return "" if set(parts) == {"?"} else ", ".join(parts)


def printed_table(frame: pd.DataFrame, said: Sequence[str], grid: Grid, experiment: Any) -> Tabular:
    """Return the table as it is printed, with the sentences under it."""
    return Tabular(
        title=f"FLOPs to 90 %: {experiment.name}",
        label=tabular.label_of("flops", experiment.name),
        caption=f"Least GFLOPs of one forward pass over L tokens for an {CRITERION}.",
        header=HEADER,
        rows=_printed(frame),
        notes=_notes(frame, grid, experiment),
        said=said,
    )


def _notes(frame: pd.DataFrame, grid: Grid, experiment: Any) -> list[str]:
    notes = [
        "D: the least embedding dimension that reaches it, by the mean over its seeds "
        f"({seeds_text(grid.cells)}), or, where a search went on to further seeds and rates, by "
        "its median seed at its best rate; single runs: between which D single seeds and rates put "
        "it. Linear layers: the blocks' linear layers alone, the paper's convention; total: mixing "
        "and all else counted too."
    ]
    if frame["limited_by_budget"].isin([YES, "no", "unknown"]).any():
        notes.append(f"{NOTE} Budget of the curves: see least_dim_vs_budget.")
    if experiment.budget:
        notes.append(f"Budget: {experiment.budget.strip().rstrip('.')}.")
    return [*notes, *notes_of(grid)]
