"""What a sweep will cost: FLOPs of the training budgets, seconds at rates measured."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable, Sequence
from typing import cast

import pandas as pd
import torch

from common import UserError
from config.build import check_buildable
from config.grid import Cell
from config.identity import weights_settings
from models.flops import bound_ratio, training_step_flops
from records.provenance import machine
from records.table import MOVED, read_table, table_path, training_devices
from sweeps.plan import Sweep

# Floating-point operations a second of one core until anything was measured.
ASSUMED_FLOPS_PER_SECOND = 2e10

LEAST_STEPS = 100  # of a training that tells a rate; the first steps are not as fast as the rest

_COSTS: dict[str, tuple[int, int, float]] = {}


def training_flops(cell: Cell) -> float:
    """Return the FLOPs of the cell's whole training budget, every sequence at full length."""
    if cell.config.model.construct is not None:
        return 0.0
    recipe, data = cell.config.recipe, cell.config.data
    sequences = recipe.total_steps(data.train) * min(recipe.batch_size, data.train)
    return sequences * _costs(cell)[0]


def pair_flops(cell: Cell) -> float:
    """Return the mixing FLOPs for a pair of tokens, a layer and a head (`bound_ratio`); NaN for
    weights that a function constructs."""
    return math.nan if cell.config.model.construct is not None else _costs(cell)[2]


def _costs(cell: Cell) -> tuple[int, int, float]:
    """Training FLOPs of a sequence of full length, that length, and `pair_flops` there."""
    settings = weights_settings(cell.config)
    key = json.dumps([settings["task"], settings["model"]])
    if key not in _COSTS:
        task, model = check_buildable(cell.config)
        flops = training_step_flops(model.flops(task.max_len))
        _COSTS[key] = flops, task.max_len, bound_ratio(model, task.max_len)
    return _COSTS[key]


class CostEstimate:
    """Seconds a cell will take at most, from the rates at which cells were trained.

    A rate is training FLOPs per second, by model, width and length: the nearest that was measured.
    Those of this machine count, from whatever experiment; without any, those of ``table``, the
    experiment's own; then those of ``others``, each from like devices; else
    `ASSUMED_FLOPS_PER_SECOND`.  ``source`` says in words which it is.  Trainings of fewer than
    `LEAST_STEPS` tell no rate.
    """

    def __init__(self, table: pd.DataFrame, others: Sequence[pd.DataFrame] = ()) -> None:
        own, every = _trained([table]), _trained([table, *others])
        here = this_device()
        kind = here.split(":")[0]
        own, every = (rows[_of_kind(rows, kind)] for rows in (own, every))
        choices = {
            f"measured on this machine ({here})": every[every["device"] == here],
            "measured in this experiment, on another machine": own,
            "measured on other machines": every[every["device"] != ""],
        }
        told, rows = next(
            ((words, part) for words, part in choices.items() if len(part)), ("", every[:0])
        )
        assumed = f"{ASSUMED_FLOPS_PER_SECOND / 1e9:.0f} GFLOP/s assumed, nothing was measured yet"
        self.source = f"rates of {len(rows)} trainings {told}" if told else assumed
        self.measured: dict[tuple[str, int, float], float] = {}
        for key, values in rows.groupby(["model", "dim", "max_len"], dropna=False)["rate"]:
            model, dim, length = cast("tuple[str, int, float]", key)
            self.measured[model, int(dim), length] = float(values.median())

    def rate(self, model: str, dim: int, length: float = math.nan) -> float:
        """Return FLOPs per second expected of ``model`` at width ``dim`` and that many tokens."""

        def distance(known: tuple[str, int, float]) -> tuple[bool, float, float]:
            longer = abs(math.log(known[2] / length)) if known[2] > 0 and length > 0 else 0.0
            return known[0] != model, abs(math.log(known[1] / dim)), longer

        near = min(self.measured, key=distance, default=None)
        return ASSUMED_FLOPS_PER_SECOND if near is None else self.measured[near]

    def seconds(self, cell: Cell) -> float:
        """Return the seconds that the cell's training budget would take on one worker."""
        dim = cell.config.model.dim
        if not dim:
            return 0.0
        rate = self.rate(cell.config.model.name, dim, _costs(cell)[1])
        return training_flops(cell) / rate


def _trained(tables: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Return a row per training: model, dim, max_len, device and FLOPs per second."""
    columns = ["model", "dim", "max_len", "device", "weights"]
    found = []
    for table in tables:
        seconds = pd.to_numeric(table["train_seconds"], errors="coerce").fillna(0)
        steps = table["steps"] if "steps" in table else pd.Series(math.nan, table.index)
        short = pd.to_numeric(steps, errors="coerce") < LEAST_STEPS
        rows = table[table["status"].eq("done") & (seconds > 0) & ~short]
        rows = rows.assign(device=training_devices(rows))
        rate = rows["flops_training"].astype(float) / rows["train_seconds"].astype(float)
        found.append(rows.reindex(columns=columns).assign(rate=rate))
    every = pd.concat(found, ignore_index=True)
    named = every["weights"].notna()
    every = pd.concat([every[named].drop_duplicates("weights"), every[~named]])
    every = every[every["rate"] > 0]
    return every.assign(device=every["device"].astype(object).fillna("").astype(str))


def _of_kind(rows: pd.DataFrame, kind: str) -> pd.Series:
    """Tell of which rows the device is of that kind, or not told, and trained from end to end."""
    told = rows["device"].str.split(":").str[0]
    return told.isin(["", kind]) & ~rows["device"].str.contains(MOVED, regex=False)


def this_device() -> str:
    """Return the device that cells train on here by default, as results tables name it."""
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    return str(machine(torch.device(kind))["device"])


def estimate_of(sweep: Sweep) -> CostEstimate:
    """Return the estimate for a sweep, from its table and those of the experiments beside it."""
    own = table_path(sweep.results_dir, sweep.experiment.name)
    others = []
    for path in sorted(sweep.results_dir.glob("*/results.csv")):
        if path != own:
            with contextlib.suppress(UserError):  # a damaged table elsewhere is no matter here
                others.append(read_table(path))
    return CostEstimate(sweep.table(), others)


def of_weights(cells: Iterable[Cell]) -> list[Cell]:
    """Return one cell of each weights: what is trained once is paid once."""
    return list({cell.weights: cell for cell in reversed(list(cells))}.values())
