"""What a sweep will cost: FLOPs of the training budgets, seconds at rates measured."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import cast

import pandas as pd

from config.build import check_buildable
from config.grid import Cell
from config.identity import weights_settings
from models.flops import bound_ratio, training_step_flops

# Floating-point operations a second of one core until this experiment has measured its own.
ASSUMED_FLOPS_PER_SECOND = 2e10

_COSTS: dict[str, tuple[int, float]] = {}


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
    return math.nan if cell.config.model.construct is not None else _costs(cell)[1]


def _costs(cell: Cell) -> tuple[int, float]:
    """Training FLOPs of a sequence, and `pair_flops`, at the task's longest sequence."""
    settings = weights_settings(cell.config)
    key = json.dumps([settings["task"], settings["model"]])
    if key not in _COSTS:
        task, model = check_buildable(cell.config)
        flops = training_step_flops(model.flops(task.max_len))
        _COSTS[key] = flops, bound_ratio(model, task.max_len)
    return _COSTS[key]


class CostEstimate:
    """Seconds a cell will take at most, from the rates that this experiment has measured.

    A rate is training FLOPs per second, by model and width where measured, else the nearest that
    was, else `ASSUMED_FLOPS_PER_SECOND`.
    """

    def __init__(self, table: pd.DataFrame) -> None:
        done = table[table["status"].eq("done") & (table["train_seconds"].fillna(0) > 0)]
        rate = done["flops_training"].astype(float) / done["train_seconds"].astype(float)
        self.measured: dict[tuple[str, int], float] = {}
        for key, values in rate.groupby([done["model"], done["dim"].astype(int)]):
            model, dim = cast("tuple[str, int]", key)
            self.measured[model, dim] = float(values.median())

    def rate(self, model: str, dim: int) -> float:
        """Return FLOPs per second expected of ``model`` at width ``dim``."""
        near = sorted(
            self.measured,
            key=lambda known: (known[0] != model, abs(math.log(known[1] / dim))),
        )
        return self.measured[near[0]] if near else ASSUMED_FLOPS_PER_SECOND

    def seconds(self, cell: Cell) -> float:
        """Return the seconds that the cell's training budget would take on one worker."""
        dim = cell.config.model.dim
        return training_flops(cell) / self.rate(cell.config.model.name, dim) if dim else 0.0


def of_weights(cells: Iterable[Cell]) -> list[Cell]:
    """Return one cell of each weights: what is trained once is paid once."""
    return list({cell.weights: cell for cell in reversed(list(cells))}.values())
