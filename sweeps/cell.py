"""One cell from configuration to record: weights, then a measurement of them."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import torch

from common import (
    FULL,
    DiskFullError,
    RunError,
    UserError,
    make_folder,
    require_writable,
    write_json,
)
from config.build import build_measured_task, check_buildable
from config.columns import described, resolved
from config.schema import CellConfig
from evaluation.judge import Evaluation, evaluate
from evaluation.memory import memory_for
from models.flops import linear_layer_flops, total_flops
from models.transformer import Transformer
from records.folders import EVALUATION_PARTS, CellFolder, WeightsFolder
from records.provenance import machine, now, source
from sweeps.listeners import Listeners
from sweeps.ready import require_memory
from sweeps.signals import stop_signals_noted, stop_signals_received
from sweeps.wandb_mirror import track_cell
from sweeps.weights import measured_sequences, obtain, train_along
from tasks.task import Task
from training.distributed import PeerLostError, Processes, joined, own_device
from training.events import Evaluated, Listener, Phase, ignore
from training.trainer import Interrupted


def run_cell(config: CellConfig, listener: Listener = ignore) -> dict[str, Any] | None:
    """Run the cell unless its record is there; return the record.

    None when another process works on the cell just now.  A cell that fails is recorded as
    failed with its reason, then `RunError` is raised; a bad configuration raises `UserError`
    before anything is written.  Of the processes that torchrun started, the first does all this;
    the others only train along, and return None.
    """
    task, model = check_buildable(config)
    require_memory(config, model)
    config.machine.use_threads()
    with joined(config.machine.device) as processes:
        if not processes.first:
            train_along(config, task, processes)
            return None
        return _run_first(config, task, processes, listener)


def _run_first(
    config: CellConfig, task: Task, processes: Processes, listener: Listener
) -> dict[str, Any] | None:
    cell = CellFolder.of(config)
    if config.experiment_name is not None and not config.under_sweep:
        require_writable(Path(config.results_dir) / config.experiment_name, "results_dir")
    make_folder(Path(config.runs_dir), "runs_dir")
    mine = cell.acquire()
    try:
        record = finished_record(config, cell) if mine else None
        works = processes.from_first(lambda: mine and record is None)
        if not works:
            if mine:
                cell.restore_config(resolved(config))
            return record
        if config.force:
            _set_aside(config, cell)
        elif record is None and cell.record() is None:
            cell.set_record_aside("record.json")
        cell.write_config(resolved(config))
        return _run_recorded(config, task, cell, processes, listener)
    finally:
        cell.release()


def _set_aside(config: CellConfig, cell: CellFolder) -> None:
    """Move the cell's files away; weights among them once no process trains or reads these."""
    weights = WeightsFolder.of(config)
    if weights.name != cell.name:
        cell.set_aside()
        return
    try:
        while not weights.acquire():
            pass
        cell.set_aside()
    finally:
        weights.release()


def finished_record(config: CellConfig, cell: CellFolder) -> dict[str, Any] | None:
    """Return the record that makes running the cell needless, None when it must run."""
    record = cell.record()
    if record is None or config.force:
        return None
    return record if record["status"] == "done" or not config.retry_failed else None


def _run_recorded(
    config: CellConfig, task: Task, cell: CellFolder, processes: Processes, listener: Listener
) -> dict[str, Any]:
    """Run the cell and write its record, whatever happens to it short of a kill.

    Stop signals are noted until the record is written: who ended another process of torchrun
    ends this one a moment later.
    """
    tracker = track_cell(config, cell.name, cell.folder)
    tell = Listeners(cell, tracker, listener)
    with stop_signals_noted():
        try:
            outcome = _measured(config, task, cell, processes, tell)
        except (Interrupted, PeerLostError) as stop:
            reason = str(stop) or "stopped; continues from its checkpoint"
            outcome = {"status": "unfinished", "reason": reason}
        except UserError:
            tracker.finish(failed=True)
            raise
        except Exception as error:
            full = isinstance(error, DiskFullError) or getattr(error, "errno", None) in FULL
            outcome = {"status": "unfinished" if full else "failed", "reason": reason_of(error)}
        record = {**_identified(config, task, cell), **_here(config, processes), **outcome}
        record["finished_at"] = now()
        if cell.config().get("cell") != cell.name:  # of another that trained these weights
            cell.write_config(resolved(config))
        cell.write_record(record)
    if record["status"] == "done":
        shutil.rmtree(cell.folder / EVALUATION_PARTS, ignore_errors=True)
    tracker.summarise({key: value for key, value in record.items() if value is not None})
    tracker.finish(failed=record["status"] == "failed")
    if record["status"] == "failed":
        raise RunError(f"cell {cell.name}: {record['reason']}")
    return record


def _measured(
    config: CellConfig, task: Task, cell: CellFolder, processes: Processes, tell: Listener
) -> dict[str, Any]:
    """Return the part of a finished cell's record that had to be found out."""
    weights = obtain(config, task, processes, tell)
    tell(Phase("evaluation"))
    measured = build_measured_task(config, task)
    device = own_device(config.machine.device)
    evaluation = evaluate(
        weights.model,
        measured,
        measured_sequences(config, task, measured, weights.data),
        memory_for(config.machine.evaluation_memory_mb, device),
        device,
        _stoppable(tell),
        cell.folder / EVALUATION_PARTS,
    )
    write_json(cell.folder / "errors.json", evaluation.errors, indent=None)
    return {
        "status": "done",
        **results(evaluation),
        **weights.cost,
        **cost_figures(weights.model, measured),
    }


def _stoppable(tell: Listener) -> Any:
    """Return the progress of an evaluation, which a stop signal ends."""

    def progress(done: int, total: int) -> None:
        tell(Evaluated(done, total))
        if stop_signals_received():
            raise Interrupted("stopped while evaluating; the trained weights are kept")

    return progress


def _identified(config: CellConfig, task: Task, cell: CellFolder) -> dict[str, Any]:
    measured = build_measured_task(config, task)
    names = {"max_len": measured.max_len, "weights": resolved(config)["weights"]}
    return {**described(config), **names, "cell": cell.name}


def _here(config: CellConfig, processes: Processes) -> dict[str, Any]:
    return {**source(), **machine(own_device(config.machine.device), processes.size)}


def reason_of(error: BaseException) -> str:
    """Return why a cell failed, in one line."""
    allocation = isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or allocation:
        return "out of memory; micro_batch_size=N trains the same batch N sequences at a time"
    text = " ".join(str(error).split())[:300] or type(error).__name__
    return text if isinstance(error, RunError) else f"{type(error).__name__}: {text}"


def results(evaluation: Evaluation) -> dict[str, Any]:
    """Return the columns of the table that an evaluation gives."""
    names = [item.name for item in dataclasses.fields(evaluation)]
    told = [name for name in names if "accuracy" in name or name in ("chain_exact_match", "n_test")]
    found = {name: getattr(evaluation, name) for name in told}
    return found | {"eval_seconds": round(evaluation.seconds, 3)}


def cost_figures(model: Transformer, measured: Task) -> dict[str, Any]:
    """Return parameters, FLOPs of one forward pass over the measured task's longest sequence in
    both conventions, and bytes of generation state at that length."""
    terms = model.flops(measured.max_len)
    return {
        "params": sum(parameter.numel() for parameter in model.parameters()),
        "flops_linear_layers": linear_layer_flops(terms),
        "flops_total": total_flops(terms),
        "state_bytes": model.state_bytes(measured.max_len),
    }
