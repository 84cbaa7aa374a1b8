"""One cell, from configuration to record."""

import contextlib
import math
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from common import RunError, UserError, is_bad_path, plain, write_json
from evaluation.generate import Progress
from evaluation.judge import Evaluation, evaluate
from evaluation.state_format import rounded_weights, state_rounding
from experiments.config import CellConfig, cell_from, deciding_settings, measured_task
from experiments.display import cell_progress, label, print_outcome
from experiments.names import cell_name
from experiments.row import accuracies, model_costs, read_curve, reason, status_of, training_cost
from experiments.run_folder import Run, command, commit, provenance
from experiments.table import identity, upsert
from experiments.wandb_log import track_cell
from models.build import build_model, model_of_shapes
from models.checks import exact_copy, require_causal, require_exact, require_same_step
from models.transformer import Transformer, scale_embedding
from tasks.data import DataSets, load_measured, load_or_build
from tasks.sampling import draw_set
from tasks.sequences import SequenceSet
from tasks.task import Task, build_task
from training.checkpoint import load_checkpoint
from training.device import device_name, resolve_device
from training.trainer import Evaluated, Event, Interrupted, Listener, Phase, Trainer, ignore

Stop = Callable[[], bool]  # whether to save and stop
commit()  # cached at import: files may change before a worker or a row reads it


def run_job(settings: DictConfig) -> dict[str, Any] | None:
    """Run the cell of composed settings, in a launcher's worker."""
    return run_and_report(cell_from(plain(settings)))


def run_and_report(config: CellConfig) -> dict[str, Any] | None:
    """Run a cell with a progress bar, enter it into its table, print the outcome. Returns the row;
    None if another process is working on the cell."""
    run, cell = Run.of(config), cell_name(config)
    earlier = None if config.force else run.finished(cell)
    job = OmegaConf.select(HydraConfig.get(), "job.id") if HydraConfig.initialized() else None
    in_multirun = "/" in str(job)  # the bars of local jobs would overwrite each other
    with cell_progress(enabled=config.progress and not in_multirun) as progress:
        try:
            record = earlier or run_cell(config, progress)
        except UserError as error:
            which = f"{label(identity(deciding_settings(config)))}: " if in_multirun else ""
            raise UserError(f"{which}{error}") from None
        finally:
            if config.enter and (found := run.record(cell)):
                upsert(Path(config.results_dir) / config.experiment_name, [found])
    if config.progress:
        print_outcome(config, record, earlier is not None, job if in_multirun else None)
    if record and record["row"]["status"] == "unfinished":
        raise RunError(f"cell {cell}: {record['row']['reason']}")
    return record["row"] if record else None


def run_cell(config: CellConfig, listener: Listener = ignore) -> dict[str, Any] | None:
    """Train and evaluate the cell unless done; returns its record, None if another process is
    working on it. Failures are recorded, then raised; a UserError is raised without a record."""
    task = build_task(config.task)
    measured = measured_task(config, task)
    device = resolve_device(config.machine.device)
    model_costs(model_of_shapes(config.model, task), task)  # UserError for a bad model
    torch.set_num_threads(config.machine.threads)
    run, cell = Run.of(config), cell_name(config)
    with run.locked(cell) as mine:
        if not mine:
            return None
        requeued = "SLURM_RESTART_COUNT" in os.environ  # such a job continues
        if config.force and (not requeued or run.finished(cell)):
            run.discard(cell)
        elif record := run.finished(cell):
            return record
        run.write_config(config)
        tracker, beat = track_cell(config, run), run.heartbeat(cell)

        def tell(event: Event) -> None:
            for listen in (listener, beat, tracker.listen):
                listen(event)

        row: dict[str, Any] = {"max_len": measured.max_len, "device": device_name(device)}
        failure, errors = None, None
        try:
            found, errors = train_and_measure(config, task, measured, run, tell)
            row |= {"status": "done", **found}
        except Exception as error:
            if isinstance(error, UserError) or is_bad_path(error):
                tracker.finish(row, failed=True)
                raise
            failure = error
            row |= {"status": status_of(error), "reason": reason(error)}
        record = run.write_record(
            config,
            row,
            curve=read_curve(run.folder / "curve.csv"),
            errors=errors,
            traceback=failure and "".join(traceback.format_exception(failure)),
        )
        tracker.finish(record["row"], failed=row["status"] == "failed")
        if failure is not None and not isinstance(failure, Interrupted):
            raise failure
        return record


@contextlib.contextmanager
def noting_stop_signals() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether SIGTERM or Ctrl-C has arrived; training then saves and
    stops, and a second one kills. A handler set by other code, such as submitit, is kept."""
    received: list[int] = []
    usual: dict[int, Any] = {
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGINT: signal.default_int_handler,
    }

    def note(number: int, frame: Any) -> None:
        received.append(number)
        signal.signal(number, usual[number])

    in_main = threading.current_thread() is threading.main_thread()
    replaced = [n for n in usual if in_main and signal.getsignal(n) == usual[n]]
    for number in replaced:
        signal.signal(number, note)
    try:
        yield lambda: bool(received)
    finally:
        for number in replaced:
            signal.signal(number, usual[number])


def train_and_measure(
    config: CellConfig, task: Task, measured: Task, run: Run, tell: Listener
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The columns of the cell's training and evaluation, and where chains break."""
    tell(Phase("data"))
    data = load_data(config, task)
    sequences = measured_sequences(config, task, measured, data)
    with noting_stop_signals() as stop:
        model, training = load_or_train(config, task, data, run, tell, stop)

        def progress(done: int, total: int) -> None:
            tell(Evaluated(done, total))
            if stop():
                raise Interrupted("interrupted during evaluation; the trained weights are saved")

        tell(Phase("evaluation"))
        result = measure(config, model, measured, sequences, data.train, progress)
    return {**accuracies(result), **training, **model_costs(model, measured)}, result.errors


def load_or_train(
    config: CellConfig, task: Task, data: DataSets, run: Run, tell: Listener, stop: Stop
) -> tuple[Transformer, dict[str, Any]]:
    """The trained model, and its training's columns. Raises `Interrupted` when asked to stop, or
    after the time limit."""
    device = resolve_device(config.machine.device)
    finished = run.training()
    if finished is not None:
        return load_model(config, task, run).to(device), finished["row"]
    if not len(data.train):
        raise UserError(f"data.train_file={config.data.train_file}: no usable sequences")
    tell(Phase("training"))
    if config.enter:  # a bad path fails before hours of training
        (Path(config.results_dir) / config.experiment_name).mkdir(parents=True, exist_ok=True)
    model = initial_model(config, task)
    require_exact(model)
    require_causal(model)
    require_same_step(exact_copy(model))
    end = time.monotonic() + (config.machine.time_limit_seconds or math.inf)
    trainer = Trainer(
        model, config.recipe, config.seed, data.train, data.validation, run.folder,
        config.machine, tell, lambda: stop() or time.monotonic() > end,
    )  # fmt: skip
    trainer.fit()
    row = {**training_cost(trainer), "data_fingerprint": data.fingerprint}
    write_json(run.folder / "training.json", {"row": row, "command": command(), **provenance()})
    return trainer.model, row


def initial_model(config: CellConfig, task: Task) -> Transformer:
    """The untrained model, initialised by seed and recipe."""
    torch.manual_seed(config.seed)
    model = build_model(config.model, task, config.recipe.dropout)
    scale_embedding(model.embedding, config.recipe.embedding_ratio)
    return model


def load_model(config: CellConfig, task: Task, run: Run) -> Transformer:
    """The model in the run's checkpoint."""
    model = build_model(config.model, task, config.recipe.dropout)
    model.load_state_dict(load_checkpoint(run.checkpoint)["model"])
    return model


def load_data(config: CellConfig, task: Task) -> DataSets:
    """The cell's data sets, built if missing."""
    return load_or_build(task, config.data, Path(config.data_dir), config.progress)


def measure(
    config: CellConfig, model: Transformer, task: Task, sequences: SequenceSet,
    trained_on: SequenceSet, progress: Progress,
) -> Evaluation:  # fmt: skip
    """Evaluate `model` on `sequences`, its weights and state rounded if asked."""
    machine, formats, rounding = config.machine, config.measure, None
    if formats.weight_format is not None:
        model = rounded_weights(model, formats.weight_format)
    if formats.state_format is not None:
        rounding = state_rounding(formats.state_format, model, trained_on)
    memory, device = machine.evaluation_memory_mb, resolve_device(machine.device)
    return evaluate(model, task, sequences, memory, device, progress, rounding)


def measured_sequences(
    config: CellConfig, trained_task: Task, measured: Task, data: DataSets
) -> SequenceSet:
    """The sequences to evaluate on; their prompts were not trained on, except with
    `measure.split=train` or from a file."""
    chosen = config.measure
    if chosen.file is not None:
        return load_measured(measured, chosen.file, data.train)
    if measured is not trained_task:
        count = chosen.count or config.data.test
        if not count:
            raise UserError("count (measure.count): needed with data.test=0")
        exclude = [data.train, data.validation]
        return draw_set(measured, "measure", count, config.data.seed, exclude, config.progress)
    sequences: SequenceSet = getattr(data, chosen.split)
    if chosen.count is not None and chosen.count > len(sequences):
        raise UserError(
            f"count={chosen.count}: the {chosen.split} set has {len(sequences)} sequences"
        )
    return sequences.select(slice(chosen.count))
