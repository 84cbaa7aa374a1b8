"""The weights of a cell: trained now, trained before, or constructed."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from common import UserError, make_folder
from config.build import build_model, initial_model
from config.columns import resolved
from config.schema import CellConfig
from models.exact import require_causal, require_exact
from models.flops import training_step_flops
from models.transformer import Transformer
from records.folders import WeightsFolder
from records.provenance import machine, now, source
from records.table import MOVED
from sweeps.signals import should_stop, stop_signals_noted, stop_signals_received
from tasks.data import DataSets, DataSpec, draw_measured, load_measured, load_or_build
from tasks.task import SequenceSet, Task
from training.batches import SequenceTensors
from training.checkpoint import load_checkpoint
from training.distributed import Processes, own_device
from training.events import Listener, Phase, ignore
from training.trainer import Interrupted, Trainer, TrainingRun


@dataclass
class Weights:
    """A model, what its training cost (columns of the table), and the data it was trained on."""

    model: Transformer
    cost: dict[str, Any]
    data: DataSets


def obtain(config: CellConfig, task: Task, processes: Processes, tell: Listener) -> Weights:
    """Return the cell's weights, trained where they are not there yet.

    Another process that trains the same weights is waited for.  Raises `Interrupted` when told to
    stop, `RunError` when training fails.
    """
    tell(Phase("data"))
    data = load_data(config, task)
    device = own_device(config.machine.device)
    if config.model.construct is not None:
        processes.from_first(lambda: False)
        constructed = build_model(config.model, task, 0.0).to(device)
        require_exact(constructed)
        return Weights(constructed, {"data_fingerprint": data.fingerprint}, data)
    if not len(data.train):
        raise UserError(
            f"data.train_file={config.data.train_file}: leaves nothing to train on, since all of "
            "its prompts occur in the other sets"
        )
    folder = WeightsFolder.of(config)
    _wait_for(folder)
    try:
        model = _trained_before(config, task, folder)
        if processes.from_first(lambda: model is None):
            if folder.config().get("cell") != folder.name:  # a cell's own stays beside its record
                folder.write_config(resolved(config))
            _train(config, task, data, folder, processes, tell)
            model = trained_model(config, task, folder)
        record = folder.record()
    finally:
        folder.release()
    assert record is not None and model is not None
    return Weights(model.to(device), {**record["cost"], "trained_device": record["device"]}, data)


def _trained_before(config: CellConfig, task: Task, folder: WeightsFolder) -> Transformer | None:
    """Return the model whose training has ended; None where it has not, or left a damaged file."""
    if folder.record() is None:
        folder.set_record_aside("weights.json")
        return None
    try:
        return trained_model(config, task, folder)
    except UserError as error:
        print(f"warning: {error}; training again", file=sys.stderr)
        folder.set_record_aside("weights.json")
        return None


def _wait_for(folder: WeightsFolder) -> None:
    while not folder.acquire(patience=1.0):
        if stop_signals_received():
            raise Interrupted("stopped while another process trains these weights")


def _train(
    config: CellConfig,
    task: Task,
    data: DataSets,
    folder: WeightsFolder,
    processes: Processes,
    tell: Listener,
) -> None:
    """Train, and write the record that says what it cost."""
    tell(Phase("training"))
    trainer = _trainer(config, task, data, folder, processes, tell)
    require_exact(trainer.model)
    require_causal(trainer.model)
    trainer.fit()
    folder.write_record(
        {
            "weights": folder.name,
            "cost": {
                **_training_cost(trainer),
                "data_fingerprint": data.fingerprint,
                "trained_commit": source()["commit"],
            },
            **source(),
            **machine(trainer.device, processes.size),
            "device": MOVED.join(trainer.state.devices),
            "finished_at": now(),
        }
    )


def train_along(config: CellConfig, task: Task, processes: Processes) -> None:
    """Take part in the training that the first process leads, writing nothing."""
    works = processes.from_first(lambda: False)
    if not works or not processes.from_first(lambda: False):
        return
    data = load_data(dataclasses.replace(config, progress=False), task)
    folder = WeightsFolder.of(config)
    trainer = _trainer(config, task, data, folder, processes, ignore)
    with stop_signals_noted(), contextlib.suppress(Interrupted):
        trainer.fit()


def _trainer(
    config: CellConfig,
    task: Task,
    data: DataSets,
    folder: WeightsFolder,
    processes: Processes,
    tell: Listener,
) -> Trainer:
    """Return the trainer of a freshly initialised model; `fit` looks for a checkpoint."""
    device = own_device(config.machine.device)
    run = TrainingRun(
        initial_model(config, task, device),
        config.recipe,
        config.seed,
        SequenceTensors(data.train, device),
        SequenceTensors(data.validation, device),
        folder.folder,
        machine(device, processes.size)["device"],
    )
    stop = should_stop(config.machine.time_limit_seconds)
    return Trainer(run, config.machine, tell, stop, processes)


def model_of(config: CellConfig, task: Task) -> Transformer:
    """Return the cell's model, constructed or from its checkpoint; nothing is trained.

    Raises `UserError` for a checkpoint that cannot be used, and says how to train it again.
    """
    if config.model.construct is not None:
        return build_model(config.model, task, 0.0)
    folder = WeightsFolder.of(config)
    try:
        content = load_checkpoint(folder.checkpoint, sha256=folder.checkpoint_sha256())
    except UserError as error:
        call = f"train.py config={folder.folder / 'config.yaml'} force=true"
        raise UserError(f"{error}; {call} trains it again") from None
    return _with_weights(config, task, folder, content)


def trained_model(config: CellConfig, task: Task, folder: WeightsFolder) -> Transformer:
    """Return the model whose checkpoint lies in ``folder``.

    Raises `UserError` for a checkpoint that is missing, damaged, or of other weights.
    """
    content = load_checkpoint(folder.checkpoint, sha256=folder.checkpoint_sha256())
    return _with_weights(config, task, folder, content)


def _with_weights(
    config: CellConfig, task: Task, folder: WeightsFolder, content: dict[str, Any]
) -> Transformer:
    model = build_model(config.model, task, config.recipe.dropout)
    try:
        model.load_state_dict(content["model"])
    except (KeyError, RuntimeError):
        told = f"does not belong to {folder.folder / 'config.yaml'}"
        raise UserError(f"{folder.checkpoint}: {told}") from None
    return model


def training_has_ended(config: CellConfig) -> bool:
    """Tell whether the cell's weights are those that its training ends with."""
    folder = WeightsFolder.of(config)
    if config.model.construct is not None or folder.record() is not None:
        return True
    return load_checkpoint(folder.checkpoint)["state"]["stopped"] is not None


def _training_cost(trainer: Trainer) -> dict[str, Any]:
    """Return the columns that training decides; FLOPs without padding, seconds of one process."""
    state, train = trainer.state, trainer.run.train
    reached = [row for row in state.curve if row.validation_chain_exact_match >= 0.9]
    lengths, counts = np.unique(train.host_lengths.numpy() - 1, return_counts=True)
    sequences = trainer.order.sequences_before(state.step)
    passes = [training_step_flops(trainer.model.flops(int(length))) for length in lengths]
    return {
        "steps": state.step,
        "stopped": state.stopped,
        "train_seconds": round(state.seconds, 3),
        "steps_to_90": reached[0].step if reached else None,
        "seconds_to_90": round(reached[0].seconds, 3) if reached else None,
        "padded_share": round(trainer.padded_share(), 6),
        "precision": trainer.precision,
        "flops_training": round(sequences * np.average(passes, weights=counts)),
    }


def load_data(config: CellConfig, task: Task) -> DataSets:
    """Return the data sets of a cell, built when they are not there."""
    make_folder(Path(config.data_dir), "data_dir")
    return load_or_build(task, data_spec(config), workers=1, progress=config.progress)


def data_spec(config: CellConfig) -> DataSpec:
    """Return what data a cell needs.

    Constructed weights need no training data: the test set is the same without.
    """
    spec = DataSpec(**dataclasses.asdict(config.data), directory=config.data_dir)
    if config.model.construct is not None:
        spec = dataclasses.replace(spec, train=0, validation=0, train_file=None)
    return spec


def measured_sequences(
    config: CellConfig, trained: Task, measured: Task, data: DataSets | None = None
) -> SequenceSet:
    """Return the sequences that the cell measures, none of whose prompts was trained on.

    Only ``measure.split=train`` measures what was trained on; a file is measured as it is, with a
    warning.  Raises `UserError` where the data are not those that the weights were trained on.
    """
    measure = config.measure
    if measure.file is not None:
        return load_measured(measured, measure.file, data.train if data else None)
    data = data or load_data(config, trained)
    _require_trained_on(config, data)
    if measured is not trained:
        count = measure.count or config.data.test
        exclude = [data.train, data.validation]
        return draw_measured(measured, count, config.data.seed, exclude, progress=config.progress)
    sequences: SequenceSet = getattr(data, measure.split)
    if measure.count is not None and measure.count > len(sequences):
        raise UserError(
            f"measure.count={measure.count}: the {measure.split} set has {len(sequences)} sequences"
        )
    return sequences.select(slice(measure.count))


def _require_trained_on(config: CellConfig, data: DataSets) -> None:
    """Raise `UserError` where the weights were trained on other sequences than ``data`` holds."""
    folder = WeightsFolder.of(config)
    record = None if config.model.construct is not None else folder.record()
    noted = (record or {}).get("cost", {}).get("data_fingerprint", data.fingerprint)
    if noted != data.fingerprint:
        raise UserError(
            f"{data.path}: holds the data {data.fingerprint[:12]}, but {folder.folder} was trained "
            f"on {noted[:12]}; delete {data.path}, and it is built again"
        )
