"""Evaluate a finished cell again, from its checkpoint.

    python evaluate.py run=runs/0123456789ab
    python evaluate.py run=runs/0123456789ab task.size=20
    python evaluate.py run=runs/0123456789ab data.file=sequences.txt

The last line of standard output is one JSON object.
"""

from __future__ import annotations

if __name__ == "__main__":
    import quiet_interrupts  # noqa: F401

import dataclasses
import json
import re
import sys
from pathlib import Path
from typing import Any

import hydra
from omegaconf import DictConfig

import cli
from common import UserError, require_writable, write_json
from config.build import build_measured_task, check_buildable
from config.calls import EvaluateCall, checked
from config.columns import described
from config.compose import CONF_DIR, plain
from config.files import read_config, require_name, require_trusted_classes
from config.identity import cell_name, weights_name
from config.schema import CellConfig, MeasureConfig
from evaluation.judge import Evaluation, evaluate
from evaluation.memory import memory_for
from plots import error_positions
from plots.aligned import plan_from_table
from plots.redraw import AdHoc
from records.table import as_table
from sweeps.weights import measured_sequences, model_of, training_has_ended
from tasks.task import Task
from training.precision import resolve_device


@hydra.main(version_base="1.3", config_path=str(CONF_DIR), config_name="evaluate")
@cli.task_function
def main(given: DictConfig) -> None:
    """Hydra's entry point."""
    call = checked(EvaluateCall, plain(given))
    folder = Path(call.run)
    config = config_of(folder, call)
    task, _ = check_buildable(config)
    measured = build_measured_task(config, task)
    out = Path(call.out) if call.out else folder / "evaluation"
    require_writable(out, "out")
    config.machine.use_threads()
    device = resolve_device(config.machine.device)
    result = evaluate(
        model_of(config, task),
        measured,
        measured_sequences(config, task, measured),
        memory_for(config.machine.evaluation_memory_mb, device),
        device,
    )
    for path in draw_where_chains_break(config, measured, result, out):
        print(f"wrote {path}")
    print(json.dumps(answer(config, result)))


def config_of(folder: Path, call: EvaluateCall) -> CellConfig:
    """Return the cell in ``folder``, measured as ``call`` asks; `UserError` when it is none."""
    path = folder / "config.yaml"
    if not path.is_file():
        raise UserError(f"run={folder}: no such run (there is no {path})")
    config, content = read_config(path)
    places = [folder, folder.parent, *map(Path, ("runs", "results", "data", config.data_dir))]
    require_trusted_classes(content, path, call.trust, places)
    require_name(config, content, path)
    folder = own_folder(config, folder)
    measure = config.measure
    changes = {key: value for key, value in call.task.items() if value is not None}
    if changes or call.data.file or call.count:
        task = {**measure.task, **changes}
        if call.data.file:
            measure = MeasureConfig(task=task, file=call.data.file, count=call.count)
        else:
            count = measure.count if call.count is None else call.count
            measure = dataclasses.replace(measure, task=task, count=count)
    known = config.data_dir if Path(config.data_dir).is_dir() else "data"
    return dataclasses.replace(
        config,
        measure=measure,
        machine=call.machine,
        runs_dir=str(folder.absolute().parent),
        data_dir=call.data_dir or known,
    )


def own_folder(config: CellConfig, folder: Path) -> Path:
    """Return the run's folder under the name that its configuration gives.

    A link may have any name but that of another cell.  Raises `UserError` for other names.
    """
    cell, weights = cell_name(config), weights_name(config)
    found = folder.absolute()
    if not re.fullmatch("[0-9a-f]{12}", found.name):
        found = folder.resolve()
    if found.name not in (cell, weights):
        raise UserError(
            f"run={folder}: its config.yaml is that of cell {cell}, weights {weights}, and not of "
            f"{found.name}; a run keeps the name of its folder, and its configuration is never "
            "edited"
        )
    return found


def answer(config: CellConfig, result: Evaluation) -> dict[str, Any]:
    """Return what the last line says; weights whose training has not ended are named as such."""
    told = {key: value for key, value in vars(result).items() if key != "errors"}
    told |= {
        key: result.errors[key] for key in ("by_kind", "longest_prefix") if key in result.errors
    }
    if not training_has_ended(config):
        print("warning: the training of these weights has not ended", file=sys.stderr)
        told["status"] = "unfinished"
    return told


def draw_where_chains_break(
    config: CellConfig, task: Task, result: Evaluation, out: Path
) -> list[Path]:
    """Write numbers and figures of the first mistakes into ``out``; return the files."""
    cell = cell_name(config)
    numbers = out / "errors" / f"{cell}.json"
    write_json(numbers, result.errors, indent=None)
    row = {**vars(result), **described(config), "max_len": task.max_len, "status": "done"}
    table = as_table(row | {"cell": cell})
    figures = error_positions.draw(table, plan_from_table(table), AdHoc(cell), out / "figures")
    return [numbers, *figures]


if __name__ == "__main__":
    cli.main(main)
