"""What can be known before anything starts: whether cells can be built, and fit into memory."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable
from typing import Any

import torch

from common import UserError
from config.build import build_measured_task, check_buildable, measured_settings
from config.grid import Cell
from config.schema import CellConfig
from models.transformer import Transformer
from sweeps.weights import data_spec
from tasks.by_name import build_task
from tasks.data import require_prompts
from tasks.task import Task
from training.distributed import own_device

# Weights, gradients and one moment of the optimiser in float32; activations are not counted.
BYTES_A_PARAMETER = 12


def require_buildable(cells: Iterable[Cell]) -> None:
    """Raise `UserError` for the first cell whose task or model cannot be built.

    Each task is built, each model at each D, and each model with each task: not every combination
    of all three, which takes longer than planning.
    """
    tasks: dict[str, Task] = {}
    built: set[str] = set()
    for cell in cells:
        config = cell.config
        key = _key(config.task, measured_settings(config))
        if key not in tasks:
            tasks[key] = build_task(config.task)
            build_measured_task(config, tasks[key])
        room = tasks[key].room
        needs = key if config.model.construct else [len(room.vocabulary), room.max_len]
        model = cell.resolved["model"]
        keys = {_key(model), _key({**model, "dim": None}, needs)}
        if not keys <= built:
            check_buildable(config)
        built |= keys


def _key(*parts: Any) -> str:
    return json.dumps(parts, sort_keys=True, default=str)


def require_data(cells: Iterable[Cell]) -> None:
    """Raise `UserError` for the first cell whose task has too few distinct prompts."""
    seen: set[str] = set()
    for cell in cells:
        spec = data_spec(cell.config)
        key = _key(cell.config.task, dataclasses.asdict(spec))
        if key not in seen:
            require_prompts(build_task(cell.config.task), spec)
        seen.add(key)


def require_machine(config: CellConfig) -> torch.device:
    """Return the cell's device; raise `UserError` where this machine lacks it or its cores."""
    config.machine.require_cores()
    return own_device(config.machine.device)


def require_memory(config: CellConfig, model: Transformer) -> None:
    """Raise `UserError` where a model to train is larger than the memory of its device."""
    if config.model.construct is not None:
        return
    device = own_device(config.machine.device)
    count = sum(parameter.numel() for parameter in model.parameters())
    needed, there = BYTES_A_PARAMETER * count, memory_of(device)
    if needed > there:
        raise UserError(
            f"model.dim={config.model.dim}: {count:,} parameters need {needed / 2**30:,.0f} GiB "
            f"for weights, gradients and optimiser, {device.type} has {there / 2**30:,.0f}; "
            "lower model.dim or model.num_layers, or train on another machine"
        )


def memory_of(device: torch.device) -> int:
    """Return the bytes of memory that the device has, in use or not."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
