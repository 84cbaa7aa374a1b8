"""One cell from configuration to record: data, model, training, evaluation, cost."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch

from config.build import check_buildable, initial_model
from config.grid import describe
from config.identity import cell_name
from config.schema import CellConfig
from errors import RunError, UserError
from evaluation.judge import Evaluation, evaluate
from evaluation.memory import memory_for
from files import write_text
from models.flops import linear_layer_flops, total_flops, training_step_flops
from models.transformer import Transformer
from records.provenance import machine, now, source
from records.store import Run
from sweeps.wandb_mirror import Tracker, track_cell
from tasks.data import DataSets, DataSpec, load_or_build
from tasks.task import Task
from training.batches import SequenceTensors
from training.distributed import PeerLostError, Processes, joined, own_device
from training.events import Evaluated, Event, Listener, Phase, TrainingStep, Validation, ignore
from training.machine import Machine
from training.state import TrainingState
from training.trainer import Interrupted, Trainer, TrainingRun

HEARTBEAT_SECONDS = 1.0
EVALUATION_PARTS = "evaluation_parts"  # in a run's folder, until the record is written
Report = Callable[[dict[str, Any]], None]


def run_cell(config: CellConfig, report: Report = lambda values: None) -> dict[str, Any] | None:
    """Run the cell unless its record is there; return the record.

    None when another process works on the cell just now.  A cell that fails is recorded as
    failed with its reason, then `RunError` is raised; a bad configuration raises `UserError`
    before anything is written.  Of the processes that torchrun started, the first does all this;
    the others only train along, and return None.
    """
    task, _ = check_buildable(config)
    run = Run(config.runs_dir, cell_name(config))
    with joined(config.device) as processes:
        if not processes.first:
            _train_along(config, task, run, processes)
            return None
        mine = run.acquire()
        try:
            record = run.record() if mine else None
            finished = record and (record["status"] == "done" or not config.retry_failed)
            if not processes.from_first(lambda: mine and not finished):
                return record
            run.write_config({**dataclasses.asdict(config), "cell": run.cell})
            return _run_recorded(config, task, run, processes, report)
        finally:
            run.release()


def _train_along(config: CellConfig, task: Task, run: Run, processes: Processes) -> None:
    """Take part in the training that the first process leads, writing nothing."""
    if not processes.from_first(lambda: False):
        return
    machine_settings(config).use_threads()
    data = load_data(dataclasses.replace(config, progress=False), task)
    trainer = _trainer(config, task, data, run, processes, ignore)
    with _stop_signals(), contextlib.suppress(Interrupted):
        trainer.fit()


def _run_recorded(
    config: CellConfig, task: Task, run: Run, processes: Processes, report: Report
) -> dict[str, Any]:
    """Run the cell and write its record, whatever happens to it short of a kill.

    Training that was told to stop, or lost another process, is told again by who ends the rest:
    its signals are heeded until the record is written.
    """
    device = own_device(config.device)
    machine_settings(config).use_threads()
    base = {**describe(config), "max_len": task.max_len, "cell": run.cell, **source()}
    base |= machine(device, processes.size)
    tracker = track_cell(config, run.cell, run.folder)
    with contextlib.ExitStack() as signals:
        try:
            measured = _measure(config, task, run, processes, tracker, report, signals)
        except Interrupted:
            measured = {"status": "unfinished", "reason": "stopped; continues from its checkpoint"}
        except PeerLostError as error:
            measured = {"status": "unfinished", "reason": str(error)}
        except UserError:
            tracker.finish(failed=True)
            raise
        except Exception as error:
            measured = {"status": "failed", "reason": _reason(error)}
        record = {**base, **measured, "finished_at": now()}
        run.write_record(record)
    if record["status"] == "done":
        shutil.rmtree(run.folder / EVALUATION_PARTS, ignore_errors=True)
    tracker.summarise({k: v for k, v in record.items() if v is not None})
    tracker.finish(failed=record["status"] == "failed")
    if record["status"] == "failed":
        raise RunError(f"cell {run.cell}: {record['reason']}")
    return record


def _reason(error: BaseException) -> str:
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return "out of memory; micro_batch_size=N trains the same batch N sequences at a time"
    text = " ".join(str(error).split())[:300]
    return text if isinstance(error, RunError) else f"{type(error).__name__}: {text}"


def _measure(
    config: CellConfig,
    task: Task,
    run: Run,
    processes: Processes,
    tracker: Tracker,
    report: Report,
    signals: contextlib.ExitStack,
) -> dict[str, Any]:
    tell = _teller(run, tracker, report)
    tell(Phase("data"))
    data = load_data(config, task)
    trainer = _trainer(config, task, data, run, processes, tell)
    model = trainer.model
    signals.enter_context(_stop_signals())
    state = trainer.fit()
    signals.close()
    tell(Phase("evaluation"))
    evaluation = evaluate(
        model,
        task,
        data.test,
        memory_for(config.evaluation_memory_mb, trainer.device),
        trainer.device,
        lambda done, total: tell(Evaluated(done, total)),
        run.folder / EVALUATION_PARTS,
    )
    write_text(run.folder / "errors.json", json.dumps(evaluation.errors) + "\n")
    return {
        "status": "done",
        **_results(evaluation),
        **_training_figures(trainer, state),
        **cost_figures(model, task, state, trainer),
        "data_fingerprint": data.fingerprint,
    }


def _trainer(
    config: CellConfig, task: Task, data: DataSets, run: Run, processes: Processes, tell: Listener
) -> Trainer:
    """Return the trainer of a freshly initialised model; `fit` looks for a checkpoint."""
    device = own_device(config.device)
    training = TrainingRun(
        initial_model(config, task, device),
        config.recipe,
        config.seed,
        SequenceTensors(data.train, device),
        SequenceTensors(data.validation, device),
        run.folder,
    )
    stopping = _stopping(config.time_limit_seconds)
    return Trainer(training, machine_settings(config), tell, stopping, processes)


def machine_settings(config: CellConfig) -> Machine:
    """Return the machine settings of a cell."""
    names = [field.name for field in dataclasses.fields(Machine)]
    return Machine(**{name: getattr(config, name) for name in names})


def _results(evaluation: Evaluation) -> dict[str, Any]:
    return {
        "answer_accuracy": evaluation.answer_accuracy,
        "answer_accuracy_low": evaluation.answer_accuracy_low,
        "answer_accuracy_high": evaluation.answer_accuracy_high,
        "chain_exact_match": evaluation.chain_exact_match,
        "n_test": evaluation.n_test,
        "eval_seconds": round(evaluation.seconds, 3),
    }


def _training_figures(trainer: Trainer, state: TrainingState) -> dict[str, Any]:
    reached = [row for row in state.curve if row.validation_chain_exact_match >= 0.9]
    return {
        "steps": state.step,
        "stopped": state.stopped,
        "train_seconds": round(state.seconds, 3),
        "steps_to_90": reached[0].step if reached else None,
        "seconds_to_90": round(reached[0].seconds, 3) if reached else None,
        "padded_share": round(trainer.padded_share(), 6),
        "precision": trainer.precision,
    }


def cost_figures(
    model: Transformer, task: Task, state: TrainingState, trainer: Trainer
) -> dict[str, Any]:
    """Return parameters, FLOPs of one forward pass over L tokens in both conventions, FLOPs of
    the whole training (padding not counted), and bytes of generation state at length L."""
    terms = model.flops(task.max_len)
    mean_length = round(float((trainer.train.lengths - 1).double().mean()))
    per_sequence = training_step_flops(model.flops(mean_length))
    return {
        "params": sum(p.numel() for p in model.parameters()),
        "flops_linear_layers": linear_layer_flops(terms),
        "flops_total": total_flops(terms),
        "flops_training": state.step * trainer.order.batch_size * per_sequence,
        "state_bytes": model.state_bytes(task.max_len),
    }


def _teller(run: Run, tracker: Tracker, report: Report) -> Listener:
    """Return the function that passes news on: heartbeat file, W&B, progress bar."""
    latest: dict[str, Any] = {}
    last = 0.0

    def tell(event: Event) -> None:
        nonlocal last
        latest.update(_as_values(event))
        report(latest)
        if isinstance(event, Validation):
            tracker.log(dataclasses.asdict(event))
        if isinstance(event, Phase) or time.monotonic() - last > HEARTBEAT_SECONDS:
            last = time.monotonic()
            run.write_progress(**latest)

    return tell


def _as_values(event: Event) -> dict[str, Any]:
    match event:
        case Phase(name):
            return {"phase": name}
        case Evaluated(done, total):
            return {"evaluated": done, "of": total}
        case TrainingStep(step, steps, loss):
            return {"step": step, "steps": steps, "train_loss": loss}
        case Validation():
            return dataclasses.asdict(event)


_SIGNALLED: list[int] = []
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR2)  # `kill` and SLURM; submitit's warning


def stop_signals_received() -> tuple[int, ...]:
    """Return the signals that told this process's latest training to stop."""
    return tuple(_SIGNALLED)


def _stopping(time_limit: float | None) -> Callable[[], bool]:
    deadline = None if time_limit is None else time.monotonic() + time_limit
    return lambda: bool(_SIGNALLED) or (deadline is not None and time.monotonic() > deadline)


@contextlib.contextmanager
def _stop_signals() -> Iterator[None]:
    """While training, let preemption or `kill` end it at the next step, checkpointed."""
    _SIGNALLED.clear()

    def note(number: int, frame: FrameType | None) -> None:
        _SIGNALLED.append(number)

    try:
        previous = {number: signal.signal(number, note) for number in _STOP_SIGNALS}
    except ValueError:  # not the main thread: the caller owns the signals
        yield
        return
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def load_data(config: CellConfig, task: Task) -> DataSets:
    """Return the data sets of a cell, built when they are not there."""
    spec = DataSpec(**dataclasses.asdict(config.data), directory=config.data_dir)
    return load_or_build(task, spec, workers=1, progress=config.progress)
