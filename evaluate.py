"""Evaluate a finished cell again, from its checkpoint.

    python evaluate.py run=runs/0123456789ab
    python evaluate.py run=runs/0123456789ab data.file=sequences.txt

The last line of standard output is one JSON object.
"""

from __future__ import annotations

import json
from pathlib import Path

import hydra
import pandas as pd
import torch
import yaml
from omegaconf import DictConfig

import cli
from config.build import build_model, build_task
from config.compose import CONF_DIR
from config.grid import describe
from config.identity import cell_name
from config.schema import CellConfig, require_memory, validate_cell
from errors import UserError
from evaluation.judge import Evaluation, evaluate
from evaluation.memory import memory_for
from files import write_text
from models.transformer import Transformer
from plots import error_positions
from plots.__main__ import AdHoc
from plots.cells import plan_from_table
from records.store import COLUMNS
from sweeps.cell import load_data
from tasks.data import load_file
from tasks.task import Task
from training.checkpoint import load_checkpoint
from training.precision import resolve_device


def load_run(folder: Path) -> CellConfig:
    """Return the configuration of the run in ``folder``; `UserError` when it is none."""
    path = folder / "config.yaml"
    try:
        plain = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError:
        raise UserError(f"run={folder}: no such run (there is no {path})") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise UserError(f"{path}: damaged; not readable as YAML") from None
    if not isinstance(plain, dict):
        raise UserError(f"{path}: damaged; not the configuration of a run")
    plain.pop("cell", None)
    return validate_cell(plain)


def load_model(folder: Path, config: CellConfig, task: Task) -> Transformer:
    """Return the trained model of the run in ``folder``."""
    weights = load_checkpoint(folder / "checkpoint.pt")
    model = build_model(config.model, task, config.recipe.dropout)
    try:
        model.load_state_dict(weights["model"])
    except (KeyError, RuntimeError):
        raise UserError(
            f"{folder / 'checkpoint.pt'}: does not belong to {folder / 'config.yaml'}"
        ) from None
    return model


def draw_where_chains_break(
    config: CellConfig, task: Task, result: Evaluation, out: Path
) -> list[Path]:
    """Write numbers and figures of the first mistakes into ``out``; return the files."""
    cell = cell_name(config)
    numbers = out / "errors" / f"{cell}.json"
    write_text(numbers, json.dumps(result.errors) + "\n")
    row = {**describe(config), **vars(result), "max_len": task.max_len, "status": "done"}
    table = pd.DataFrame([row | {"cell": cell}]).reindex(columns=COLUMNS)
    figures = error_positions.draw(table, plan_from_table(table), AdHoc(cell), out / "figures")
    return [numbers, *figures]


@hydra.main(version_base="1.3", config_path=str(CONF_DIR), config_name="evaluate")
@cli.task_function
def main(call: DictConfig) -> None:
    """Hydra's entry point."""
    require_memory(call.evaluation_memory_mb)
    if not isinstance(call.threads, int) or call.threads < 1:
        raise UserError(f"threads={call.threads}: must be a whole number of at least 1")
    folder = Path(call.run)
    config = load_run(folder)
    torch.set_num_threads(call.threads)
    task = build_task(config.task)
    model = load_model(folder, config, task)
    file = call.data.file
    sequences = load_file(task, file) if file else load_data(config, task).test
    device = resolve_device(call.device)
    memory_mb = memory_for(call.evaluation_memory_mb, device)
    result = evaluate(model, task, sequences, memory_mb, device)
    out = Path(call.out) if call.out else folder / "evaluation"
    for path in draw_where_chains_break(config, task, result, out):
        print(f"wrote {path}")
    print(json.dumps({key: value for key, value in vars(result).items() if key != "errors"}))


if __name__ == "__main__":
    cli.main(main)
