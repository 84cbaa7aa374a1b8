"""Least FLOPs for 90 % (the paper's Table 2), under both conventions, beside the paper's numbers.

One forward pass over L tokens, 2 FLOPs per multiply-add.  ``linear layers`` counts the blocks'
linear layers alone, 2 * 12 * M * D^2 * L, which is what the paper's numbers are; ``total`` counts
the token mixing, the embedding's head and all else too, that is the very cost in which the
efficient models differ.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from plots import paper, style
from plots.cells import Grid, gather, records
from plots.frontier import Requirement, requirements
from plots.text import csv_text
from plots.text import latex as escape
from plots.words import notes_of, seeds_text

CONVENTIONS = {"flops_linear_layers": "linear layers", "flops_total": "total"}
CRITERION = "answer accuracy of at least 90 %"


def draw(table: pd.DataFrame, plan: pd.DataFrame, experiment: Any, out: Path) -> list[Path]:
    """Write ``flops_table.csv``, ``.md`` and ``.tex`` and return their paths."""
    grid = gather(table, plan)
    frame, said = rows(grid), sentences(grid)
    texts = {
        "csv": csv_text(frame),
        "md": markdown(frame, said, grid, experiment),
        "tex": latex(frame, said, grid, experiment),
    }
    return [style.write_text(text, out / f"flops_table.{kind}") for kind, text in texts.items()]


@dataclass(frozen=True)
class Least:
    """The cheapest cell that reaches the criterion under one convention."""

    dim: int
    flops: float


def rows(grid: Grid) -> pd.DataFrame:
    """Return the table, a row per task, size and model.

    ``state`` is reached, not reached, incomplete (none of the measured reaches it and some are
    missing) or not run; FLOPs and D are empty unless reached.  ``smaller_unmeasured`` lists
    dimensions below D without a result: then D and FLOPs are upper bounds.
    """
    found = []
    for column in grid.columns:
        for row in grid.model_rows:
            panel = grid.panel(column, row)
            found += [_row(panel, column, row, item) for item in requirements(panel)]
    frame = pd.DataFrame(found)
    order = {label: place for place, label in enumerate(grid.columns)}
    frame["place"] = frame["task"].map(order)
    frame = frame.sort_values(["place", "size"], kind="stable").drop(columns="place")
    integers = ["max_len", "dim", "best_dim", "paper_length", "paper_dim"]
    frame[integers] = frame[integers].astype("Int64")
    return frame.reset_index(drop=True)


def _row(panel: pd.DataFrame, column: str, row: str, item: Requirement) -> dict[str, Any]:
    cells = panel[panel["size"] == item.size]
    first = cells.iloc[0]
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
        "seeds": int(cells.loc[cells["dim"] == (item.dim or item.best_dim), "seeds"].max() or 0)
        if item.best_dim
        else 0,
    }
    for name in CONVENTIONS:
        least = least_flops(cells, name)
        values[f"gflops_{name.removeprefix('flops_')}"] = least.flops / 1e9 if least else np.nan
    applies = paper.table_2_applies(first["task"], first["format"], first["layers"])
    model = first["model"] if applies else ""
    values["paper_length"] = paper.ARITHMETIC_LENGTHS.get(item.size) if applies else None
    values["paper_gflops"] = paper.TABLE_2_GFLOPS.get(model, {}).get(item.size, np.nan)
    values["paper_dim"] = paper.FRONTIER_DIM.get(model, {}).get(item.size)
    return values


def _integer(value: float) -> int | None:
    return None if np.isnan(value) else int(value)


def least_flops(cells: pd.DataFrame, convention: str) -> Least | None:
    """Return the cheapest cell with mean accuracy >= 90 % under ``convention``, or None."""
    reached = cells[(cells["state"] == "done") & (cells["accuracy"] >= paper.THRESHOLD)]
    reached = reached.dropna(subset=[convention])
    if reached.empty:
        return None
    best = reached.iloc[int(np.argmin(reached[convention]))]
    return Least(int(best["dim"]), float(best[convention]))


def sentences(grid: Grid) -> list[str]:
    """Say which model is cheapest per size under each convention, and whether it changes."""
    said = []
    changed: list[str] = []
    compared = 0
    for column in grid.columns:
        cells = grid.cells[grid.cells["column"] == column]
        for size in sorted(cells["size"].unique()):
            winners = {
                name: _cheapest(cells[cells["size"] == size], grid.model_rows, name)
                for name in CONVENTIONS
            }
            where = f"{column}, n = {size}"
            text, verdict = _verdict(where, winners, cells[cells["size"] == size], grid)
            said.append(text)
            compared += verdict is not None
            if verdict:
                changed.append(f"{where} ({verdict})")
    return [*said, _conclusion(changed, compared)]


def _cheapest(cells: pd.DataFrame, order: list[str], convention: str) -> dict[str, Least]:
    found = {row: least_flops(cells[cells["row"] == row], convention) for row in order}
    reached = {row: least for row, least in found.items() if least}
    return dict(sorted(reached.items(), key=lambda item: item[1].flops))


def _verdict(
    where: str, winners: dict[str, dict[str, Least]], cells: pd.DataFrame, grid: Grid
) -> tuple[str, str | None]:
    """Return the sentence and, when two models can be compared, what changes ("" for nothing)."""
    plain, total = (list(winners[name].items()) for name in CONVENTIONS)
    states = {
        row: requirements(cells[cells["row"] == row])[0]
        for row in grid.model_rows
        if (cells["row"] == row).any()
    }
    without = [f"{row} {item.state}" for row, item in states.items() if item.state != "reached"]
    bounds = [row for row, item in states.items() if item.open_below]
    caveat = f" ({', '.join(without)})" if without else ""
    if bounds:
        caveat += f" (an upper bound for {', '.join(bounds)}: smaller D lack results)"
    if not plain or not total:
        return f"{where}: no model reaches 90 %{caveat}.", None
    text = (
        f"{where}: cheapest by linear layers {_winner(plain)}, by total {_winner(total)}{caveat}."
    )
    if len(plain) < 2 or len(total) < 2:
        return text, None
    first, second = _ranking(plain), _ranking(total)
    return text, "" if first == second else f"{first} becomes {second}"


def _ranking(found: list[tuple[str, Least]]) -> str:
    """Return the models from cheap to dear, e.g. ``Standard = Sparse < Linear``."""
    text = found[0][0]
    for (_, before), (row, least) in itertools.pairwise(found):
        text += f" {'=' if least.flops == before.flops else '<'} {row}"
    return text


def _winner(found: list[tuple[str, Least]]) -> str:
    row, least = found[0]
    ties = [other for other, value in found[1:] if value.flops == least.flops]
    names = " and ".join([row, *ties])
    return f"{names} ({_gflops(least.flops / 1e9)} GFLOPs, D = {least.dim})"


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


def _gflops(value: float) -> str:
    """Three significant digits in plain decimals (the paper prints three decimals)."""
    if np.isnan(value):
        return ""
    digits = max(0, 2 - int(np.floor(np.log10(value)))) if value > 0 else 0
    return f"{value:.{min(digits, 9)}f}"


def _cells_of(line: Any) -> tuple[str, str, str]:
    """Return D, linear layers and total as the printed tables show them."""
    if line.state == "reached":
        bound = "≤ " if line.smaller_unmeasured else ""
        return (
            f"{bound}{line.dim}",
            bound + _gflops(line.gflops_linear_layers),
            bound + _gflops(line.gflops_total),
        )
    if line.state == "not run":
        return "not run", "", ""
    best = f"best {style.percent(line.best_accuracy)} % at D = {line.best_dim}"
    lacking = line.unmeasured.replace(" ", ", ")
    return f"not reached ({best}{f'; no result for D = {lacking}' if lacking else ''})", "", ""


HEADER = ["task", "n", "L", "model", "D", "linear layers", "total", "paper", "paper D", "paper L"]


def _printed(frame: pd.DataFrame) -> list[list[str]]:
    return [
        [
            line.task, str(line.size), _plain(line.max_len), line.model, *_cells_of(line),
            "" if np.isnan(line.paper_gflops) else f"{line.paper_gflops:.3f}",
            _plain(line.paper_dim), _plain(line.paper_length),
        ]
        for line in records(frame)
    ]  # fmt: skip


def _plain(value: Any) -> str:
    return "" if pd.isna(value) else str(value)


def _caption(grid: Grid, experiment: Any) -> list[str]:
    lines = [
        f"Least GFLOPs of one forward pass over L tokens for an {CRITERION}, and the embedding "
        f"dimension D that reaches it ({seeds_text(grid.cells)}; a D counts when its accuracy, "
        "or the mean over its seeds, does). "
        "Linear layers: the blocks' linear layers alone, the paper's convention; total: mixing "
        "and all else counted too."
    ]
    if experiment.budget:
        lines.append(f"Budget: {experiment.budget.strip().rstrip('.')}.")
    return [*lines, *notes_of(grid)]


def markdown(frame: pd.DataFrame, said: list[str], grid: Grid, experiment: Any) -> str:
    """Return the table in Markdown, captioned, with the sentences under it."""
    printed = _printed(frame)
    used = _used_columns(printed)
    lines = [f"# FLOPs to 90 %: {experiment.name}", "", *_caption(grid, experiment), ""]
    lines.append("| " + " | ".join(HEADER[i] for i in used) + " |")
    lines.append(
        "|" + "|".join("---" if HEADER[i] in ("task", "model") else "---:" for i in used) + "|"
    )
    lines += ["| " + " | ".join(row[i].replace("|", "\\|") for i in used) + " |" for row in printed]
    return "\n".join([*lines, "", *(f"- {text}" for text in said)]) + "\n"


def _used_columns(printed: list[list[str]]) -> list[int]:
    """Leave the paper's columns out where the paper says nothing of any row."""
    return [i for i in range(len(HEADER)) if i < 7 or any(row[i] for row in printed)]


def latex(frame: pd.DataFrame, said: list[str], grid: Grid, experiment: Any) -> str:
    """Return a ``table`` environment for a document that loads ``booktabs``."""
    printed = _printed(frame)
    used = _used_columns(printed)
    align = "".join("l" if HEADER[i] in ("task", "model") else "r" for i in used)
    body = []
    for before, row in zip([None, *printed], printed, strict=False):
        if before is not None and before[:2] != row[:2]:
            body.append(r"\midrule")
        body.append(" & ".join(_latex_cell(row, i) for i in used if _is_kept(row, i)) + r" \\")
    caption = " ".join([*_caption(grid, experiment), said[-1]])
    kind = "table*" if len(used) > 7 else "table"
    return "\n".join([
        r"% needs \usepackage{booktabs}",
        *(f"% {text}" for text in said[:-1]),
        rf"\begin{{{kind}}}", r"\centering", r"\small",
        rf"\caption{{{escape(caption)}}}",
        rf"\begin{{tabular}}{{{align}}}", r"\toprule",
        " & ".join(_latex_header(i) for i in used) + r" \\", r"\midrule",
        *body, r"\bottomrule", r"\end{tabular}", rf"\end{{{kind}}}", "",
    ])  # fmt: skip


def _latex_header(index: int) -> str:
    name = HEADER[index]
    return f"${name}$" if name in ("n", "L", "D") else escape(name)


def _is_kept(row: list[str], index: int) -> bool:
    """A text instead of D spans D and both FLOPs."""
    return index not in (5, 6) or bool(row[5])


def _latex_cell(row: list[str], index: int) -> str:
    text = escape(row[index])
    return rf"\multicolumn{{3}}{{r}}{{{text}}}" if index == 4 and not row[5] else text
