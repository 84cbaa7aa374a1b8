"""``strategy=frontier``: the least D that reaches 90 % answer accuracy, searched and confirmed.

The search bisects, one seed at the experiment's own learning rate, supposing that accuracy does
not fall as D grows.  What follows from that supposition and was not measured is called inferred,
and enters no results table: `frontier.csv` says of every D of the grid which it is.

A single run at the edge of what is learned proves little.  So the D found is measured with three
seeds, and the D below it with three seeds at each of three learning rates; `sweeps.least_dim` says
what follows.  ``experiment.confirm=seeds`` keeps to the experiment's own rate, ``false`` leaves all
of that out.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from common import write_atomically
from config.columns import described, settings_of, varying
from config.grid import Cell, variant
from config.identity import measurement_settings
from records.folders import CellFolder
from sweeps.least_dim import (
    DIVERGED,
    RATE_FACTORS,
    THRESHOLD,
    Group,
    Run,
    Width,
    confirming_seeds,
    median,
)
from sweeps.plan import Planned, Sweep

# The cells of one D: for each rate one of each seed, the experiment's own first.
Trials = list[list[Cell]]


def search(sweep: Sweep, launch: Callable[[Sequence[Planned]], None]) -> list[Group]:
    """Measure what is wanted, all groups side by side, until every group is solved or stuck.

    A group is stuck when a cell fails or is in other hands; a cell is launched once.
    """
    trials = candidates(sweep)
    launched: set[str] = set()
    while True:
        found = standing(sweep, trials, sweep.enter())
        runs = [run.planned for group in found for run in group.wanted()]
        wanted = {planned.cell.name: planned for planned in runs if planned is not None}
        chosen = [p for p in sweep.to_launch(wanted.values()) if p.cell.name not in launched]
        if not chosen:
            return found
        launched |= {planned.cell.name for planned in chosen}
        sweep.add(planned.cell for planned in chosen)
        launch(chosen)


def standing(sweep: Sweep, trials: Sequence[Sequence[Trials]], table: pd.DataFrame) -> list[Group]:
    """Return the groups as the runs and the results table have them now; writes nothing."""
    done = table[table["status"].eq("done")]
    accuracies = dict(zip(done["cell"], done["answer_accuracy"].astype(float), strict=True))
    plan = {planned.cell.name: planned for planned in sweep.plan()}

    def width(cells: Trials) -> Width:
        runs = [[_run(sweep, cell, plan, accuracies) for cell in seeds] for seeds in cells]
        # Of the first run a divergence is left for the user to see, as any failure is.
        runs[0][0] = dataclasses.replace(runs[0][0], diverged=False)
        return Width(runs)

    return [Group([width(cells) for cells in widths]) for widths in trials]


def _run(
    sweep: Sweep, cell: Cell, plan: Mapping[str, Planned], accuracies: Mapping[str, float]
) -> Run:
    folder = CellFolder(sweep.runs_dir, cell.name)
    planned = plan.get(cell.name) or Planned(cell, folder, "missing")
    done, failed = planned.status == "done", planned.status == "failed"
    accuracy = accuracies.get(cell.name) if done else None
    if done and accuracy is None:  # recorded, not yet entered
        accuracy = (folder.record() or {}).get("answer_accuracy")
    return Run(
        planned,
        accuracy,
        diverged=failed and (planned.reason or "").startswith(DIVERGED),
        dim=int(described(cell.config)["dim"]),
        seed=cell.config.seed,
        rate=cell.config.recipe.learning_rate,
        failed=failed,
    )


def candidates(sweep: Sweep) -> list[list[Trials]]:
    """Return, group by group and D by D (ascending), the cells that a search may measure.

    Cells of a group differ in D alone; with ``confirm`` also in the seed.  Its seeds are then the
    grid's, and further ones until there are three.  They become the candidates of ``sweep``.
    """
    confirm = sweep.experiment.confirm
    found: dict[str, list[Cell]] = {}
    for cell in sweep.grid_cells:
        found.setdefault(_group_key(cell, confirm), []).append(cell)
    trials = [_trials(cells, confirm) for cells in found.values()]
    sweep.candidates = [c for widths in trials for w in widths for seeds in w for c in seeds]
    return trials


def _group_key(cell: Cell, confirm: bool | str) -> str:
    part = measurement_settings(cell.config)
    part["model"] = {**part["model"], "dim": None}
    return json.dumps(part | ({"seed": None} if confirm else {}), sort_keys=True)


def _trials(cells: Sequence[Cell], confirm: bool | str) -> list[Trials]:
    by_dim: dict[int, dict[int, Cell]] = {}
    for cell in cells:
        by_dim.setdefault(described(cell.config)["dim"], {})[cell.config.seed] = cell
    seeds = list(dict.fromkeys(cell.config.seed for cell in cells))
    if confirm:
        seeds = confirming_seeds(seeds)
    widths = []
    for _, known in sorted(by_dim.items()):
        one = next(iter(known.values()))
        own = [known.get(seed) or variant(one, [f"seed={seed}"]) for seed in seeds]
        factors = RATE_FACTORS if confirm is True else (1.0,)
        widths.append([own, *([_at_rate(c, factor) for c in own] for factor in factors[1:])])
    return widths


def _at_rate(cell: Cell, factor: float) -> Cell:
    rate = cell.config.recipe.learning_rate * factor
    return variant(cell, [f"recipe.learning_rate={rate!r}"])


def write_frontier(found: Sequence[Group], path: Path) -> pd.DataFrame:
    """Write a row per D of every group: measured or inferred, and what follows; return them.

    ``answer_accuracy`` is that of the median seed at ``best_rate``, with the extremes over the
    ``seeds`` measured there; ``rates`` are all that were measured; ``seed`` and ``cell`` are those
    that the bisection looks at.
    """
    labels = _labels([width for group in found for width in group.widths])
    rows: list[dict[str, Any]] = []
    for group in found:
        lowest, highest = group.interval
        least = {"least_dim": group.least_dim, "least_dim_low": lowest, "least_dim_high": highest}
        for width, (how, reaches) in zip(group.widths, group.verdicts(), strict=True):
            which = labels[width.first.cell.name] | _measured(width)
            verdict = {"how": how, "reaches": reaches}
            rows.append({**which, **verdict, **least, "outcome": group.outcome()})
    table = pd.DataFrame(rows).astype(dict.fromkeys(least, "Int64"))
    write_atomically(path, lambda temporary: table.to_csv(temporary, index=False))
    return table


def _measured(width: Width) -> dict[str, Any]:
    """Return the columns that tell what was measured of one D; empty where nothing was."""
    best = width.best
    shares = [run.accuracy for run in best if run.accuracy is not None]
    rates = [s[0].rate for s in width.runs if any(run.reaches is not None for run in s)]
    return {
        "cell": width.first.cell.name,
        "answer_accuracy": median(best) if best else None,
        "answer_accuracy_min": min(shares, default=None),
        "answer_accuracy_max": max(shares, default=None),
        "seeds": " ".join(str(run.seed) for run in best),
        "best_rate": best[0].rate if best else None,
        "rates": " ".join(map(repr, sorted(rates))),
    }


def _labels(widths: Iterable[Width]) -> dict[str, dict[str, Any]]:
    """Return by first cell what names each D: standard columns, and settings that vary."""
    cells = [width.first.cell for width in widths]
    settings = {cell.name: settings_of(cell.resolved) for cell in cells}
    keys = varying([(described(cell.config), settings[cell.name]) for cell in cells])
    return {
        cell.name: described(cell.config) | {key: settings[cell.name].get(key) for key in keys}
        for cell in cells
    }


def print_frontier(found: Sequence[Group]) -> None:
    """Print a line per group, and how much was measured and inferred."""
    labels = _labels([width for group in found for width in group.widths])
    counts = {"measured": 0, "inferred": 0, "unknown": 0}
    runs = [run for group in found for width in group.widths for run in width.every_run]
    for group in found:
        told = []
        for width, (how, reaches) in zip(group.widths, group.verdicts(), strict=True):
            counts[how] += 1
            mark = {True: "yes", False: "no", None: "?"}[reaches]
            told.append(f"{width.dim}: {mark}{'' if how == 'measured' else '*'}")
        which = labels[group.widths[0].first.cell.name]
        print(f"{_name(group, which)}: {group.outcome()}   [{', '.join(told)}]")
    measured = len({run.cell.name for run in runs if run.reaches is not None})
    print(
        f"frontier at {THRESHOLD:.0%} answer accuracy: {counts['measured']} D measured in "
        f"{measured} cells, {counts['inferred']} inferred (*), {counts['unknown']} unknown"
    )


def _name(group: Group, which: dict[str, Any]) -> str:
    others = [f"{key}={value}" for key, value in which.items() if "." in key and value is not None]
    runs = [run for width in group.widths for run in width.every_run]
    seeds = {run.seed for run in runs if run.reaches is not None} or {runs[0].seed}
    others.append("seed=" + ",".join(map(str, sorted(seeds))))
    name = "{task} n={size} {format} {model} layers={layers} heads={heads} recipe={recipe} "
    return name.format(**which) + " ".join(others)
