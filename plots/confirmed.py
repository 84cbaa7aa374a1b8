"""The runs by which a frontier search confirms a least D, and what they say of it.

At the edge of what is learned the search measures further seeds, and below it further learning
rates (`sweeps.least_dim`).  Cells of a figure keep to the experiment's own rate, else luck with a
rate would colour a heatmap; the runs at other rates stand beside them in `Grid.trials`.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pandas as pd

from sweeps.least_dim import DIVERGED, RATE_FACTORS, Group, Run, Width, confirming_seeds

RATE = "recipe.learning_rate"


def marked(rows: pd.DataFrame, plan: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Return ``rows`` with ``rate``, ``own`` and ``further``, and the planned rate under `RATE`.

    ``own`` is whether a run has a rate that the plan gives its cell, ``further`` whether it is one
    that the plan lacks, of a cell that the plan has.  A run at another rate then has the keys of
    that cell.
    """
    names = [name for name in keys if name != RATE]
    points = [rows[names].itertuples(index=False, name=None), plan[names].itertuples(index=False)]
    here, there = (list(map(tuple, found)) for found in points)
    rates = rows[RATE] if RATE in rows else pd.Series("", rows.index)
    planned_rates = plan[RATE] if RATE in plan else pd.Series("", plan.index)
    wanted: dict[tuple, dict[tuple[str, int], None]] = {}
    for point, rate, seed in zip(there, planned_rates, plan["seed"], strict=True):
        wanted.setdefault(point, {})[rate, seed] = None
    own, further, base = [], [], []
    for point, rate, seed in zip(here, rates, rows["seed"], strict=True):
        known = [planned for planned, _ in wanted.get(point, ())]
        own.append(not known or rate in known or known[0] == "")
        further.append(bool(known) and (rate, seed) not in wanted[point])
        base.append(rate if own[-1] else known[0])
    found = rows.assign(rate=pd.to_numeric(rates, errors="coerce"), own=own, further=further)
    return found.assign(**{RATE: base}) if RATE in rows else found


def note(rows: pd.DataFrame) -> list[str]:
    """Return a sentence on the runs that the plan lacks, for the notes under a figure."""
    seeds, rates = int((rows["further"] & rows["own"]).sum()), int((~rows["own"]).sum())
    if not seeds and not rates:
        return []
    parts = [f"{seeds} of further seeds"] if seeds else []
    parts += [f"{rates} at other learning rates, in no mean"] if rates else []
    return [f"beyond the plan stand the runs that confirm a least D: {', '.join(parts)}"]


def group_of(cells: pd.DataFrame, trials: pd.DataFrame) -> Group | None:
    """Return what the runs of ``cells`` (one task, model and size) say; None if D is ambiguous."""
    if cells["dim"].duplicated().any():
        return None
    by_point: dict[Any, list[dict[Hashable, Any]]] = {point: [] for point in cells["point"]}
    for run in trials[trials["point"].isin(cells["point"])].to_dict("records"):
        by_point[run["point"]].append(run)
    own = [int(run["seed"]) for runs in by_point.values() for run in runs if run["own"]]
    # Trials have the planned seeds first: the search begins with them.
    seeds = confirming_seeds(list(dict.fromkeys(own)))
    ordered = cells.sort_values("dim")
    pairs = zip(ordered["dim"], ordered["point"], strict=True)
    return Group([_width(int(dim), by_point[point], seeds) for dim, point in pairs])


def at_tried_rates(group: Group) -> Group:
    """Return ``group`` without the rates at which nothing of it is known."""
    tried = [
        any(run.reaches is not None for width in group.widths for run in width.runs[index])
        for index in range(1, len(RATE_FACTORS))
    ]
    return Group([Width(list(itertools.compress(w.runs, [True, *tried]))) for w in group.widths])


def _width(dim: int, runs: Sequence[Mapping[Hashable, Any]], seeds: Sequence[int]) -> Width:
    base = max((run["rate"] for run in runs if run["own"] and run["rate"] > 0), default=math.nan)

    def at(factor: float) -> list[Run]:
        rate = factor * base
        near = {
            int(run["seed"]): run
            for run in runs
            if (run["own"] if factor == 1 else not run["own"] and math.isclose(run["rate"], rate))
        }
        return [_run(dim, rate, seed, near.get(seed, {})) for seed in seeds]

    rates = [at(factor) for factor in RATE_FACTORS]
    if rates[0][0].diverged:  # left open by the search, as any failure of the first run is
        rates[0][0] = dataclasses.replace(rates[0][0], diverged=False)
    return Width(rates)


def _run(dim: int, rate: float, seed: int, row: Mapping[Hashable, Any]) -> Run:
    status, reason = row.get("status"), str(row.get("reason") or "")
    share = float(row.get("answer_accuracy", math.nan))
    return Run(
        None,
        share if status == "done" and share == share else None,
        diverged=status == "failed" and reason.startswith(DIVERGED),
        dim=dim,
        seed=seed,
        rate=rate,
        failed=status == "failed",
    )
