"""One cell as a job: run it, show it, enter it into its table."""

from __future__ import annotations

import os
from typing import Any

from omegaconf import DictConfig

from common import RunError
from config.compose import plain
from config.schema import CellConfig, validate_cell
from records.folders import CellFolder
from records.table import merge
from sweeps.cell import finished_record, run_cell
from sweeps.progress import CellProgress, summary_line
from torchrun import is_first


def run(config: DictConfig) -> dict[str, Any] | None:
    """Run the cell that ``config`` describes: what a launcher's worker does."""
    return run_and_enter(validate_cell(plain(config)))


def run_and_enter(config: CellConfig) -> dict[str, Any] | None:
    """Run a cell, enter it into its table unless a sweep does, print what came of it.

    Raises `RunError` when the cell failed or was stopped.
    """
    if not is_first():  # one of several processes that train it together
        return run_cell(config)
    cell = CellFolder.of(config)
    table = None if config.under_sweep else config.experiment_name
    known = finished_record(config, cell)
    with CellProgress(enabled=config.progress) as progress:
        try:
            record = run_cell(config, progress)
        finally:
            if table is not None:
                merge(config.results_dir, table, [cell])
    if not config.under_sweep:
        _tell(config, record, known is not None)
    if record is not None and record["status"] == "unfinished":
        raise RunError(f"cell {record['cell']}: {record['reason']}")
    return record


def _tell(config: CellConfig, record: dict[str, Any] | None, known: bool) -> None:
    if known and record is not None and record["status"] == "done":
        again = "" if "COTCOST_WORKER" in os.environ else "; force=true measures again"
        print(f"already done{again}: {summary_line(config, record)}", flush=True)
    else:
        print(summary_line(config, record), flush=True)
