"""What 90 % costs in everything a user pays: FLOPs, state, seconds an answer, training.

Per task, size and model at its least D, a column for each currency with its winner in bold, and a
sentence under each size: does the efficient model save computation, and in which currency?
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from plots import least_dim_rows, style, tabular
from plots.answers import Timed, read_answers, timed_together
from plots.budgets import MARK, NOTE, YES, Budgets, of_grid
from plots.cells import Grid, gather, records
from plots.frontier import Requirement, deciding_runs, requirements_of
from plots.tabular import Tabular, plain, significant
from plots.words import notes_of, seeds_text

NAME = "cost_table"
BASELINE = "standard"  # what an efficient model would have to save against
NONE = "—"


@dataclass(frozen=True)
class Currency:
    """One column: its heading, its name in sentences, and how a value is printed."""

    heading: str
    words: str
    unit: float = 1.0
    more_is_better: bool = False
    turns: str = ""  # the list of `Timed` of which a winner must win every turn

    def text(self, value: float) -> str:
        """Return three significant digits in plain decimals, the dash where nothing is known."""
        return NONE if math.isnan(value) else significant(value / self.unit)


CURRENCIES = {
    "flops_linear_layers": Currency("linear-layer GFLOPs", "linear-layer FLOPs", 1e9),
    "flops_total": Currency("total GFLOPs", "total FLOPs", 1e9),
    "state_bytes": Currency("state KiB", "bytes of state", 1024),
    "answer_seconds": Currency("ms an answer", "time an answer", 1e-3, turns="answer_seconds"),
    "tokens_per_second": Currency(
        "tokens/s", "time a token in batches", more_is_better=True, turns="tokens_per_second"
    ),
    "training_flops": Currency("training TFLOPs", "training FLOPs", 1e12),
    "training_seconds": Currency("training core-s", "training core-seconds"),
    "seconds_as_run": Currency("training s as run", "training seconds as run"),
}
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


def rows(
    grid: Grid, budgets: Budgets | None = None, answers: Sequence[dict[str, Any]] = ()
) -> pd.DataFrame:
    """Return the table: `least_dim_rows.rows`, and per model the costs and ``best_*``.

    ``group`` numbers what is compared: models of one task and size, of equal layers, heads and
    recipe.  ``best_*`` is whether a model wins a currency: yes, no, or empty without a comparison.
    """
    frame = least_dim_rows.rows(grid, budgets)
    flops = {f"gflops_{name.removeprefix('flops_')}": name for name in least_dim_rows.CONVENTIONS}
    frame = frame.rename(columns=flops)
    frame[[*flops.values()]] *= 1e9
    costs = pd.DataFrame(_costs(grid, answers))
    frame = frame.merge(costs, on=["task", "model", "size"], how="left", validate="1:1")
    keys = ["task", "size", "layers", "heads", "recipe"]
    frame["group"] = frame.groupby(keys, sort=False).ngroup()
    frame = frame.sort_values("group", kind="stable", ignore_index=True)
    for name in CURRENCIES:
        frame[f"best_{name}"] = ""
        for _, part in frame.groupby("group", sort=False):
            frame.loc[part.index, f"best_{name}"] = winners(part, name)
    return frame


def _costs(grid: Grid, answers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for column in grid.columns:
        for size in np.unique(grid.cells.loc[grid.cells["column"] == column, "size"]):
            items = {
                row: item
                for row in grid.model_rows
                for item in requirements_of(grid, column, row)
                if item.size == size
            }
            runs = {row: deciding_runs(grid, column, row, item) for row, item in items.items()}
            cells = {row: list(map(str, runs[row]["cell"])) for row in items}
            timed, _ = timed_together(answers, cells)
            found += [
                {"task": column, "model": row, "size": size}
                | _cost(grid.panel(column, row).iloc[0], item, runs[row], timed.get(row))
                for row, item in items.items()
            ]
    return found


def _cost(first: Any, item: Requirement, runs: pd.DataFrame, timed: Timed | None) -> dict[str, Any]:
    share = _column(runs, "steps_to_90") / _column(runs, "steps")
    steps = _upper_median(_column(runs, "steps_to_90"), runs)
    return {
        **{name: first[name] for name in ("layers", "heads", "recipe")},
        "name": first["model"],
        "state_bytes": float(_column(runs, "state_bytes").max()),
        "answer_seconds": timed.median("answer_seconds") if timed else np.nan,
        "tokens_per_second": timed.median("tokens_per_second") if timed else np.nan,
        "training_step_seconds": timed.median("training_step_seconds") if timed else np.nan,
        "timed_weights": timed.weights if timed else "",
        "timed": timed,
        "steps_to_90": steps,
        "training_flops": _upper_median(share * _column(runs, "flops_training"), runs),
        "training_seconds": steps * (timed.median("training_step_seconds") if timed else np.nan),
        "seconds_as_run": _upper_median(_column(runs, "seconds_to_90"), runs),
        "train_seconds": _upper_median(_column(runs, "train_seconds"), runs),
        "trained_on": "; ".join(sorted(set(runs.get("device", pd.Series(dtype=object)).dropna()))),
    }


def _column(runs: pd.DataFrame, name: str) -> pd.Series:
    values = runs[name] if name in runs else pd.Series(np.nan, runs.index)
    return pd.to_numeric(values).astype(float)


def _upper_median(values: pd.Series, runs: pd.DataFrame) -> float:
    """Return the upper median over the runs, a run without a value being dearer than any."""
    if runs.empty:
        return float("nan")
    middle = float(statistics.median_high(values.fillna(math.inf)))
    return float("nan") if math.isinf(middle) else middle


def winners(part: pd.DataFrame, name: str) -> list[str]:
    """Return yes or no for each model of a group, empty for what cannot be compared."""
    currency = CURRENCIES[name]
    known = part[(part["state"] == "reached") & part[name].notna()]
    if len(known) < 2 or (name == "seconds_as_run" and known["trained_on"].nunique() > 1):
        return [""] * len(part)
    best = known.sort_values(name, ascending=not currency.more_is_better, kind="stable").iloc[0]
    said = {
        place: "no" if _compare(best, line, name) > 0 else "yes" for place, line in known.iterrows()
    }
    return [said.get(place, "") for place in part.index]


def _compare(one: Any, other: Any, name: str) -> int:
    """Return 1 where ``one`` is better than ``other``, -1 where it is worse, 0 where neither.

    Of what was timed in turns, better is what is better in every turn.
    """
    currency = CURRENCIES[name]
    pairs = [(one[name], other[name])]
    if currency.turns:
        pairs = list(zip(*(getattr(x["timed"], currency.turns) for x in (one, other)), strict=True))
    signs = {int(np.sign(b - a)) for a, b in pairs}
    sign = signs.pop() if len(signs) == 1 else 0
    return -sign if currency.more_is_better else sign


def sentences(frame: pd.DataFrame) -> list[str]:
    """Say under each size what the efficient models save, and in which currencies; then sum up."""
    said = []
    for _, part in frame.groupby("group", sort=False):
        first = part.iloc[0]
        if (part["state"] == "not run").all():
            continue
        same = frame[(frame["task"] == first["task"]) & (frame["size"] == first["size"])]
        keys = [key for key in ("layers", "heads", "recipe") if same[key].nunique() > 1]
        words = [style.setting_label(key, first[key]) for key in keys]
        where = ", ".join([str(first["task"]), f"n = {first['size']}", *words])
        said.append(_sentence(where, part))
    return said + [_summary(frame, model) for model in _efficient(frame)]


def _efficient(frame: pd.DataFrame) -> list[str]:
    return list(dict.fromkeys(frame.loc[frame["name"] != BASELINE, "model"]))


def _sentence(where: str, part: pd.DataFrame) -> str:
    caveat = least_dim_rows.caveat(part)
    base, others = _baseline(part), _reached(part[part["name"] != BASELINE])
    if base is None or others.empty:
        who = " and ".join(_reached(part)["model"]) or "no model"
        verb = "reach" if " and " in who else "reaches"
        return f"{where}: {who} {verb} 90 %, so no saving can be stated{caveat}."
    told = "; ".join(_saving(line, base) for _, line in others.iterrows())
    return f"{where}, against {base['model']} (D = {base['dim']}): {told}{caveat}."


def _reached(part: pd.DataFrame) -> pd.DataFrame:
    return part[part["state"] == "reached"]


def _baseline(part: pd.DataFrame) -> Any:
    standards = _reached(part[part["name"] == BASELINE])
    if standards.empty:
        return None
    return standards.sort_values("flops_linear_layers", kind="stable").iloc[0]


def _saving(line: Any, base: Any) -> str:
    by_sign: dict[int, list[str]] = {1: [], 0: [], -1: []}
    lacking = []
    for name, currency in CURRENCIES.items():
        if pd.isna(line[name]) or pd.isna(base[name]):
            lacking.append(currency.words)
            continue
        sign = _compare(line, base, name)
        high, low = sorted((line[name], base[name]), reverse=True)
        ratio = f" ({'÷' if sign > 0 else '×'} {_ratio(high / low)})" if sign else ""
        by_sign[sign].append(f"{currency.words}{ratio}")
    saved, same, dearer = (", ".join(by_sign[sign]) for sign in (1, 0, -1))
    text = f"{line['model']} (D = {line['dim']}) saves {saved or 'nothing'}"
    text += f", is as dear in {same}" if same else ""
    text += f", is dearer in {dearer}" if dearer else ""
    return text + (f", not measured: {', '.join(lacking)}" if lacking else "")


def _ratio(ratio: float) -> str:
    return significant(ratio) if ratio >= 1.005 else "less than 1.01"


def _summary(frame: pd.DataFrame, model: str) -> str:
    counts = {name: [0, 0] for name in CURRENCIES}
    for _, part in frame.groupby("group", sort=False):
        base, own = _baseline(part), _reached(part[part["model"] == model])
        if base is None or own.empty:
            continue
        for name, count in counts.items():
            if not pd.isna(own.iloc[0][name]) and not pd.isna(base[name]):
                count[0] += _compare(own.iloc[0], base, name) > 0
                count[1] += 1
    told = [f"{CURRENCIES[n].words} at {a} of {b}" for n, (a, b) in counts.items() if b]
    if not told:
        return f"{model}: at no size do it and {style.model_label(BASELINE)} both reach 90 %."
    return f"{model} saves {', '.join(told)} sizes at which both reach 90 %."


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
        return [*start, told, *[None if line.state != "not run" else ""] * len(CURRENCIES), "", ""]
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
        _timing_note(answers, experiment),
    ]
    if frame["limited_by_budget"].isin([YES, "no", "unknown"]).any():
        notes.append(NOTE)
    if experiment.budget:
        notes.append(f"Budget: {experiment.budget.strip().rstrip('.')}.")
    return [*notes, *notes_of(grid)]


def _timing_note(answers: Sequence[dict[str, Any]], experiment: Any) -> str:
    if not answers:
        return (
            "Nothing was timed yet; python -m benchmarks answers "
            f"experiment={experiment.name} times the models at their least D."
        )

    def distinct(name: str) -> str:
        return ", ".join(sorted({str(row.get(name, "")) for row in answers}))

    return (
        f"Timed: greedy generation of a whole chain by prefill and step, float32, one thread, CPU "
        f"seconds, medians of {distinct('repeats')} turns that the models of a size take; ms an "
        f"answer at batch 1, tokens/s at batch {distinct('batch')}. {distinct('device')}, commit "
        f"{distinct('commit')}."
    )
