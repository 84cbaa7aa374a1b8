"""One cell as a job: run it, show it, enter it into its table."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig

from config.compose import plain
from config.schema import validate_cell
from errors import RunError
from records.store import Run, enter
from sweeps.cell import run_cell
from sweeps.progress import CellProgress, summary_line
from torchrun import is_first


def run(config: DictConfig) -> dict[str, Any] | None:
    """Run the cell that ``config`` describes, enter it into its table, return its record."""
    cell = validate_cell(plain(config))
    if not is_first():  # one of several processes that train it together
        return run_cell(cell)
    with CellProgress(enabled=cell.progress) as progress:
        try:
            record = run_cell(cell, progress)
        finally:
            if cell.experiment_name is not None and not cell.under_sweep:
                enter(cell.results_dir, cell.experiment_name, [Run.of(cell)])
    if not cell.under_sweep:
        print(summary_line(cell, record), flush=True)
    if record is not None and record["status"] == "unfinished":
        raise RunError(f"cell {record['cell']}: {record['reason']}")
    return record
