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

from plots import paper, style, tabular
from plots.budgets import MARK, NOTE, YES, Budgeted, Budgets, of_grid
from plots.cells import Grid, gather, records
from plots.frontier import Requirement, requirements_of
from plots.tabular import Tabular, plain, significant
from plots.words import notes_of, seeds_text

CONVENTIONS = {"flops_linear_layers": "linear layers", "flops_total": "total"}
CRITERION = "answer accuracy of at least 90 %"


def draw(table: pd.DataFrame, plan: pd.DataFrame, experiment: Any, out: Path) -> list[Path]:
    """Write ``flops_table.csv``, ``.md`` and ``.tex`` and return their paths."""
    grid = gather(table, plan)
    frame = rows(grid, of_grid(grid, out.parent))
    printed = printed_table(frame, sentences(grid, frame), grid, experiment)
    return tabular.write(printed.texts(frame), out, "flops_table")


def rows(grid: Grid, budgets: Budgets | None = None) -> pd.DataFrame:
    """Return the table, a row per task, size and model.

    ``state`` is reached, not reached, incomplete (none of the measured reaches it and some are
    missing) or not run; FLOPs and D are empty unless reached.  ``smaller_unmeasured`` lists
    dimensions below D without a result: then D and FLOPs are upper bounds.  ``confirmed``,
    ``seeds``, ``rates``, ``dim_low`` and ``dim_high`` say what stands behind D
    (`plots.frontier.Requirement`), ``limited_by_budget`` and ``dim_*_budget`` whether more steps
    would move it (`plots.budgets`).
    """
    budgets = of_grid(grid, None) if budgets is None else budgets
    found = [
        _row(grid, column, row, item, budgets[column, row, item.size])
        for column in grid.columns
        for row in grid.model_rows
        for item in requirements_of(grid, column, row)
    ]
    frame = pd.DataFrame(found)
    order = {label: place for place, label in enumerate(grid.columns)}
    frame["place"] = frame["task"].map(order)
    frame = frame.sort_values(["place", "size"], kind="stable").drop(columns="place")
    integers = ["max_len", "dim", "best_dim", "dim_low", "dim_high", "paper_length", "paper_dim"]
    frame[integers] = frame[integers].astype("Int64")
    return frame.reset_index(drop=True)


def _row(
    grid: Grid, column: str, row: str, item: Requirement, budgeted: Budgeted
) -> dict[str, Any]:
    panel = grid.panel(column, row)
    first = panel.iloc[0]
    values: dict[str, Any] = {
        "task": column,
        "size": item.size,
        "max_len": _integer(item.max_len),
        "model": row,
        "state": item.state,
        "dim": item.dim,
        "best_dim": item.best_dim,
        "best_accuracy": round(item.best_accuracy, 6),
        "smaller_unmeasured": " ".join(map(str, item.open_below)),
        "unmeasured": " ".join(map(str, item.open_above)),
        "seeds": item.seeds,
        "rates": item.rates,
        "confirmed": "yes" if item.confirmed else "no",
        "evidence": item.evidence if item.dim else "",
        "dim_low": item.low,
        "dim_high": item.high,
        **budgeted.columns(),
    }
    for name in CONVENTIONS:
        values[f"gflops_{name.removeprefix('flops_')}"] = _flops(grid, panel, item, name) / 1e9
    applies = paper.table_2_applies(first["task"], first["format"], first["layers"])
    model = first["model"] if applies else ""
    values["paper_length"] = paper.ARITHMETIC_LENGTHS.get(item.size) if applies else None
    values["paper_gflops"] = paper.TABLE_2_GFLOPS.get(model, {}).get(item.size, np.nan)
    values["paper_dim"] = paper.FRONTIER_DIM.get(model, {}).get(item.size)
    return values


def _integer(value: float) -> int | None:
    return None if np.isnan(value) else int(value)


def _flops(grid: Grid, panel: pd.DataFrame, item: Requirement, convention: str) -> float:
    """Return the FLOPs of the least D, empty without one; they do not depend on seed or rate."""
    cell = panel[(panel["size"] == item.size) & (panel["dim"] == item.dim)]
    known = grid.trials.loc[grid.trials["point"].isin(cell["point"]), convention]
    return float(known.max())


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


def caveat(part: pd.DataFrame) -> str:
    """Return in brackets which models of a size do not reach 90 %, or not surely."""
    without = [f"{line.model} {line.state}" for line in records(part) if line.state != "reached"]
    bounds = part.loc[part["smaller_unmeasured"] != "", "model"]
    limited = part.loc[part["limited_by_budget"] == YES, "model"]
    told = f" ({', '.join(without)})" if without else ""
    if len(bounds):
        told += f" (an upper bound for {', '.join(bounds)}: smaller D lack results)"
    return told + (f" (limited by the budget: {', '.join(limited)})" if len(limited) else "")


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


def cells_of(line: Any) -> tuple[str, str | None, str | None]:
    """Return D, linear layers and total as the printed tables show them."""
    if line.state == "reached":
        bound = "≤ " if line.smaller_unmeasured else ""
        return (
            f"{bound}{line.dim}{MARK if line.limited_by_budget == YES else ''}",
            bound + significant(line.gflops_linear_layers),
            bound + significant(line.gflops_total),
        )
    if line.state == "not run":
        return "not run", "", ""
    best = f"best {style.percent(line.best_accuracy)} % at D = {line.best_dim}"
    lacking = line.unmeasured.replace(" ", ", ")
    return f"not reached ({best}{f'; no result for D = {lacking}' if lacking else ''})", None, None


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
        f"({seeds_text(grid.cells)}), or, where a search confirmed it, by its median seed at its "
        "best rate; single runs: between which D single seeds and rates put it. Linear layers: the "
        "blocks' linear layers alone, the paper's convention; total: mixing and all else counted "
        "too."
    ]
    if frame["limited_by_budget"].isin([YES, "no", "unknown"]).any():
        notes.append(f"{NOTE} Budget of the curves: see least_dim_vs_budget.")
    if experiment.budget:
        notes.append(f"Budget: {experiment.budget.strip().rstrip('.')}.")
    return [*notes, *notes_of(grid)]


def markdown(frame: pd.DataFrame, said: Sequence[str], grid: Grid, experiment: Any) -> str:
    """Return the table in Markdown, captioned, with the sentences under it."""
    return printed_table(frame, said, grid, experiment).markdown()
