"""One cell, from configuration to record."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import shutil
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from errno import EDQUOT, ENOSPC
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from omegaconf import DictConfig

from common import RunError, UserError
from evaluation.judge import Evaluation, evaluate
from experiments import wandb_log
from experiments.config import CellConfig, cell_from, deciding_settings, measured_task, plain
from experiments.display import CellProgress, print_outcome
from experiments.names import cell_name, identity, source_digests
from experiments.runs import Run, command, provenance
from experiments.table import upsert
from models.build import build_model
from models.exact import require_causal, require_exact
from models.flops import linear_layer_flops, total_flops, training_step_flops
from models.transformer import Transformer, scale_embedding
from tasks.data import DataSets, draw_measured, load_measured, load_or_build
from tasks.task import SequenceSet, Task, build_task
from training.checkpoint import load_checkpoint
from training.device import device_name, resolve_device
from training.trainer import (
    Evaluated,
    Event,
    Interrupted,
    Listener,
    Phase,
    Trainer,
    TrainingStarts,
    TrainingStep,
    Validation,
    ignore,
    still_improving,
)

HEARTBEAT_SECONDS = 1.0


def run_job(settings: DictConfig) -> dict[str, Any] | None:
    """Run the cell that composed settings describe: what a launcher's worker does."""
    return run_and_report(cell_from(plain(settings)))


def run_and_report(config: CellConfig) -> dict[str, Any] | None:
    """Run a cell with a progress bar, enter it into its table, print what came of it.

    Return the row; None where another process works on the cell.
    """
    run, cell = Run.of(config), cell_name(config)
    known = None if config.force else finished(run, cell)
    with CellProgress(enabled=config.progress) as progress:
        try:
            record = known or run_cell(config, progress)
        finally:
            entered = run.record(cell)
            if entered and config.enter and config.experiment_name:
                upsert(Path(config.results_dir) / config.experiment_name, [entered])
    if config.progress:
        print_outcome(config, record, already_done=known is not None)
    if record and record["row"]["status"] == "unfinished":
        raise RunError(f"cell {cell}: {record['row']['reason']}")
    return record["row"] if record else None


def run_cell(config: CellConfig, listener: Listener = ignore) -> dict[str, Any] | None:
    """Train and measure the cell unless that is done; return its record.

    None where another process works on it. A failure is recorded before it is raised; a bad
    configuration raises `UserError` before anything is written.
    """
    task = build_task(config.task)
    measured = measured_task(config, task)
    device = resolve_device(config.machine.device)
    require_buildable(config, task)
    torch.set_num_threads(config.machine.threads)
    run, cell = Run.of(config), cell_name(config)
    with run.locked(cell) as mine:
        if not mine:
            return None
        if not config.force and (record := finished(run, cell)):
            return record
        if config.force:
            run.discard()
        run.write_config(config)
        tracker = wandb_log.track_cell(config, run)
        tell = both(both(listener, heartbeat(run, cell)), tracker.listen)
        row = {**identity(deciding_settings(config)), "max_len": measured.max_len}
        errors = failure = trace = None
        with noting_stop_signals() as stop:
            try:
                should_stop = stop_after(config.machine.time_limit_seconds, stop)
                tell(Phase("data"))
                data = load_data(config, task)
                sequences = measured_sequences(config, task, measured, data)
                model, cost = trained(config, task, data, run, tell, should_stop)
                tell(Phase("evaluation"))
                evaluation = measure(config, measured, model, sequences, run, tell, stop)
                row |= {"status": "done", **accuracies(evaluation), **cost}
                row |= costs(model, measured)
                errors = evaluation.errors
            except Interrupted as stopped:
                row |= {"status": "unfinished", "reason": str(stopped) or "stopped"}
            except UserError:
                tracker.finish(row, failed=True)
                raise
            except Exception as error:
                failure, trace = error, traceback.format_exc()
                status = "unfinished" if disk_is_full(error) else "failed"
                row |= {"status": status, "reason": reason(error)}
            row |= {"run": run.name, "cell": cell, **provenance()}
            row.setdefault("device", device_name(device))
            record = {
                "row": row,
                "config": deciding_settings(config),
                "sources": source_digests(config) or None,
                "command": command(),
                "curve": read_curve(run.folder / "curve.csv"),
                "errors": errors,
                "traceback": trace,
            }
            run.write_record(cell, record)
        tracker.finish(row, failed=failure is not None)
        if failure is not None:
            raise failure
        shutil.rmtree(parts_folder(run, cell), ignore_errors=True)
        return record


def require_buildable(config: CellConfig, task: Task) -> None:
    """Build the model and count its cost, so that a bad cell never starts."""
    # Not on the meta device: sparse attention's pattern needs values, and it loads the compiler.
    if config.model.construct is None:
        costs(build_model(config.model, task), task)


def finished(run: Run, cell: str) -> dict[str, Any] | None:
    """Return the record of a finished measurement."""
    record = run.record(cell)
    return record if record and record["row"]["status"] == "done" else None


def trained(
    config: CellConfig,
    task: Task,
    data: DataSets,
    run: Run,
    tell: Listener,
    should_stop: Callable[[], bool],
) -> tuple[Transformer, dict[str, Any]]:
    """Return the model, and what its training cost: columns of the table.

    Trains it unless that is done. Raises `Interrupted` when asked to stop.
    """
    device = resolve_device(config.machine.device)
    if config.model.construct is not None:
        model = build_model(config.model, task).to(device)
        require_exact(model)
        sizes = {"layers": len(model.blocks), "dim": model.dim}
        heads = model.blocks[0].mixer.num_heads if len(model.blocks) else 0
        return model, {**sizes, "heads": heads, "data_fingerprint": data.fingerprint}
    known = run.training()
    if known is not None:
        return load_model(config, task, run).to(device), known["row"]
    if not len(data.train):
        raise UserError(f"data.train_file={config.data.train_file}: nothing is left to train on")
    tell(Phase("training"))
    model = initial_model(config, task)
    require_exact(model)
    require_causal(model)
    trainer = Trainer(
        model, config.recipe, config.seed, data.train, data.validation, run.folder,
        config.machine, tell, should_stop,
    )  # fmt: skip
    trainer.fit()
    row = {**training_cost(trainer), "data_fingerprint": data.fingerprint}
    run.write_training({"row": row, "command": command(), **provenance()})
    return trainer.model, row


def initial_model(config: CellConfig, task: Task) -> Transformer:
    """Return the model before its first step, as seed and recipe make it."""
    torch.manual_seed(config.seed)
    model = build_model(config.model, task, config.recipe.dropout)
    scale_embedding(model.embedding, config.recipe.embedding_ratio)
    return model


def load_model(config: CellConfig, task: Task, run: Run) -> Transformer:
    """Return the model in the run's checkpoint, or the constructed one."""
    model = build_model(config.model, task, config.recipe.dropout)
    if config.model.construct is None:
        model.load_state_dict(load_checkpoint(run.checkpoint)["model"])
    return model


def load_data(config: CellConfig, task: Task) -> DataSets:
    """Return the cell's data sets, built where they are not there."""
    data = config.data
    if config.model.construct is not None:  # the test set is the same without training data
        data = dataclasses.replace(data, train=0, validation=0, train_file=None)
    return load_or_build(task, data, Path(config.data_dir), config.progress)


def measure(
    config: CellConfig,
    measured: Task,
    model: Transformer,
    sequences: SequenceSet,
    run: Run,
    tell: Listener,
    stop: Callable[[], bool],
) -> Evaluation:
    """Return accuracies of what the model writes for ``sequences``."""

    def progress(done: int, total: int) -> None:
        tell(Evaluated(done, total))
        if stop():
            raise Interrupted("stopped while evaluating; the trained weights are kept")

    return evaluate(
        model,
        measured,
        sequences,
        config.machine.evaluation_memory_mb,
        resolve_device(config.machine.device),
        progress,
        parts_folder(run, cell_name(config)),
    )


def measured_sequences(
    config: CellConfig, trained_task: Task, measured: Task, data: DataSets
) -> SequenceSet:
    """Return the sequences to measure, none of whose prompts was trained on.

    Exceptions: ``measure.split=train``, and files, which are measured as they are.
    """
    chosen = config.measure
    if chosen.file is not None:
        return load_measured(measured, chosen.file, data.train)
    if measured is not trained_task:
        count = chosen.count or config.data.test
        exclude = [data.train, data.validation]
        return draw_measured(measured, count, config.data.seed, exclude, config.progress)
    sequences: SequenceSet = getattr(data, chosen.split)
    if chosen.count is not None and chosen.count > len(sequences):
        raise UserError(
            f"measure.count={chosen.count}: the {chosen.split} set has {len(sequences)} sequences"
        )
    return sequences.select(slice(chosen.count))


def training_cost(trainer: Trainer) -> dict[str, Any]:
    """Return the columns that training decides; FLOPs are counted without padding."""
    state = trainer.state
    reached = next((r for r in state.curve if r.validation_chain_exact_match >= 0.9), None)
    lengths, counts = np.unique(trainer.train.host_lengths.numpy() - 1, return_counts=True)
    passes = [training_step_flops(trainer.model.flops(int(length))) for length in lengths]
    sequences = trainer.order.sequences_before(state.step)
    return {
        "steps": state.step,
        "stopped": state.stopped,
        "still_improving": still_improving(state.curve, state.step),
        "train_seconds": round(state.seconds, 3),
        "steps_to_90": reached.step if reached else None,
        "seconds_to_90": round(reached.seconds, 3) if reached else None,
        "precision": trainer.recipe.precision,
        "device": "; ".join(state.devices),
        "flops_training": round(sequences * np.average(passes, weights=counts)),
    }


def accuracies(evaluation: Evaluation) -> dict[str, Any]:
    """Return the columns that an evaluation gives."""
    names = [
        "answer_accuracy", "answer_accuracy_low", "answer_accuracy_high", "chain_exact_match",
        "chance_accuracy", "n_test",
    ]  # fmt: skip
    row = {name: getattr(evaluation, name) for name in names}
    return row | {"eval_seconds": round(evaluation.seconds, 3)}


def costs(model: Transformer, measured: Task) -> dict[str, Any]:
    """Return parameters, FLOPs of a forward pass over the longest sequence in both conventions,
    and bytes of generation state at that length."""
    terms = model.flops(measured.max_len)
    return {
        "params": sum(parameter.numel() for parameter in model.parameters()),
        "flops_linear_layers": linear_layer_flops(terms),
        "flops_total": total_flops(terms),
        "state_bytes": model.state_bytes(measured.max_len),
    }


def reason(error: BaseException) -> str:
    """Return in one line why a cell failed."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return "out of memory; micro_batch_size=N trains the same batch N sequences at a time"
    text = " ".join(str(error).split())[:300]
    return text if isinstance(error, RunError) else f"{type(error).__name__}: {text}"


def disk_is_full(error: BaseException) -> bool:
    """Return whether a failure would not have happened with more room on the disk."""
    causes = [error, error.__cause__]
    return any(isinstance(e, OSError) and e.errno in (ENOSPC, EDQUOT) for e in causes)


def parts_folder(run: Run, cell: str) -> Path:
    """Return where parts of a long evaluation are kept until it is finished."""
    return run.folder / f"evaluating-{cell}"


def read_curve(path: Path) -> dict[Any, list[float]] | None:
    """Return the learning curve by column; None without one."""
    if not path.exists():
        return None
    curve = pd.read_csv(path)
    return curve.to_dict("list") if len(curve) else None


def both(first: Listener, second: Listener) -> Listener:
    """Return a listener that passes every event to two."""

    def listen(event: Event) -> None:
        first(event)
        second(event)

    return listen


def heartbeat(run: Run, cell: str) -> Listener:
    """Return a listener that writes progress.json once a second, and at every new phase."""
    known: dict[str, Any] = {"cell": cell}
    written = -math.inf

    def listen(event: Event) -> None:
        nonlocal written
        match event:
            case Phase(name):
                known["phase"], written = name, -math.inf
            case TrainingStarts(step, steps):
                known.update(step=step, steps=steps)
            case TrainingStep(step, steps, loss):
                known.update(step=step, steps=steps, train_loss=loss)
            case Validation():
                known["validation_chain_exact_match"] = event.validation_chain_exact_match
            case Evaluated(done, total):
                known.update(evaluated=done, of=total)
        if time.monotonic() - written > HEARTBEAT_SECONDS:
            written = time.monotonic()
            run.write_progress(**known)

    return listen


@contextlib.contextmanager
def noting_stop_signals() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether SIGTERM has come; training then saves and stops.

    Where somebody else handles the signal, as submitit does, that handler stays.
    """
    received: list[int] = []
    try:
        replaced = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        if replaced:
            signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
    except ValueError:  # not the main thread
        replaced = False
    try:
        yield lambda: bool(received)
    finally:
        if replaced:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def stop_after(seconds: float | None, stop: Callable[[], bool]) -> Callable[[], bool]:
    """Return a function that is true once ``stop`` is, or the time limit has passed."""
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    return lambda: stop() or time.monotonic() > deadline
