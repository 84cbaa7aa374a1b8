"""The estimated cost of a sweep."""

import contextlib
import functools
import json
import math
from typing import Any

import numpy as np
import pandas as pd

from common import UserError
from experiments.grid import Cell
from experiments.plan import Sweep
from experiments.table import read_table
from models.build import model_of_shapes
from models.flops import training_step_flops
from tasks.data import numbered_lines
from tasks.sampling import planned_sizes
from tasks.task import build_task
from training.device import device_name, resolve_device

ASSUMED_FLOPS_PER_SECOND = {"cpu": 2e10, "cuda": 2e13}  # until a training run has been timed
SHORTEST = 100  # steps; shorter runs say little about speed
SIMILAR = math.log(8)  # D and L together differ at most eightfold
SAMPLE = 200  # sequences, for the mean length


def training_flops(cell: Cell) -> float:
    """FLOPs of the cell's whole training budget, every sequence at the mean length."""
    recipe, data = cell.config.recipe, cell.config.data
    count = _lines(data.train_file) if data.train_file else data.train
    sequences = recipe.total_steps(count) * min(recipe.batch_size, count)
    return sequences * _flops_and_length(cell)[0]


@functools.cache
def _lines(path: str) -> int:
    return len(numbered_lines(path))


_COUNTED: dict[str, tuple[int, int]] = {}


def _flops_and_length(cell: Cell) -> tuple[int, int]:
    """Training FLOPs of a sequence of mean length, and the greatest length."""
    key = json.dumps([cell.settings["task"], cell.settings["model"]], sort_keys=True)
    if key not in _COUNTED:
        task = build_task(cell.config.task)
        model = model_of_shapes(cell.config.model, task)
        mean = _mean_length(json.dumps(cell.config.task))
        _COUNTED[key] = training_step_flops(model.flops(mean)), task.max_len
    return _COUNTED[key]


@functools.cache
def _mean_length(task_settings: str) -> int:
    task = build_task(json.loads(task_settings))
    sizes, counts = np.unique(planned_sizes(task, "train", SAMPLE, 0), return_counts=True)
    drawn = [task.draw(0, 0, 0, int(count), int(size)).lengths - 1
             for size, count in zip(sizes, counts, strict=True)]  # fmt: skip
    return round(float(np.concatenate(drawn).mean()))


class Estimate:
    """Training seconds without early stopping, from the FLOPs per second of the most similar
    training run in all tables of results_dir, if it is close."""

    def __init__(self, sweep: Sweep) -> None:
        folders = sorted(path.parent for path in sweep.folder.parent.glob("*/results.csv"))
        table = pd.concat(map(read_table, folders or [sweep.folder]), ignore_index=True)
        device = sweep.cells[0].config.machine.device
        with contextlib.suppress(UserError):  # no GPU on a login node: "cuda" will do
            device = device_name(resolve_device(device))
        self.device = device.partition(":")[0]
        self.assumed = ASSUMED_FLOPS_PER_SECOND[self.device]
        trained = table[(table["status"] == "done") & (table["steps"] >= SHORTEST)]
        known = trained[trained["device"].astype(str).str[:3] == device[:3]].drop_duplicates("run")
        speed = known["flops_training"] / known["train_seconds"]
        keys = [known["model"], known["device"] == device, known["dim"], known["max_len"]]
        self.speeds: dict[Any, float] = speed.groupby(keys).median().to_dict()
        here = (known["device"] == device).sum()
        self.source = f"{self.assumed / 1e9:,.0f} GFLOP/s assumed"
        if not known.empty:
            runs = f"speeds of {len(known)} training runs, {here} of them on this device"
            self.source = f"{runs}; {self.source} where none is similar"

    def seconds(self, cell: Cell) -> float:
        flops = training_flops(cell)
        model, length = cell.config.model, _flops_and_length(cell)[1]

        def distance(known: Any) -> tuple[bool, bool, float]:
            name, here, dim, other_length = known
            far = abs(math.log(dim / model.dim)) + abs(math.log(other_length / length))
            return name != model.name, not here, far

        close = [known for known in self.speeds if distance(known)[2] <= SIMILAR]
        near = min(close, key=distance, default=None)
        return flops / self.speeds.get(near, self.assumed)
