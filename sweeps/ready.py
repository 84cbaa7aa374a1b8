"""What can be known before anything starts: whether cells can be built, and fit into memory."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable

import torch

from config.build import build_measured_task, check_buildable, measured_settings
from config.grid import Cell
from config.schema import CellConfig
from errors import UserError
from models.transformer import Transformer
from sweeps.weights import data_spec
from tasks.by_name import build_task
from tasks.data import require_prompts
from training.distributed import own_device

# Weights, gradients and one moment of the optimiser in float32; activations are not counted.
BYTES_A_PARAMETER = 12


def require_buildable(cells: Iterable[Cell]) -> None:
    """Raise `UserError` for the first cell whose task or model cannot be built.

    Each task is built, and one model of those that differ in D alone: what D may be is known.
    """
    seen: set[str] = set()
    for cell in cells:
        task = [cell.config.task, measured_settings(cell.config)]
        model = {**cell.resolved["model"], "dim": None}
        keys = [json.dumps(part, sort_keys=True, default=str) for part in (task, model)]
        if keys[1] not in seen:
            check_buildable(cell.config)
        elif keys[0] not in seen:
            build_measured_task(cell.config, build_task(cell.config.task))
        seen |= set(keys)


def require_data(cells: Iterable[Cell]) -> None:
    """Raise `UserError` for the first cell whose task has too few distinct prompts."""
    seen: set[str] = set()
    for cell in cells:
        spec = data_spec(cell.config)
        key = json.dumps([cell.config.task, dataclasses.asdict(spec)], sort_keys=True, default=str)
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
