"""Launching cells by whatever launcher the command line names."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from hydra._internal.callbacks import Callbacks
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.types import HydraContext, RunMode

from common import DiskFullError, RunError, UserError
from config.build import build_measured_task
from config.columns import described, resolved
from config.grid import Cell
from records.folders import CellFolder
from records.provenance import now, source
from sweeps.job import run
from sweeps.plan import Planned, waves
from sweeps.progress import which_cell
from sweeps.workers import NeverStartedError, WorkerStoppedError
from tasks.by_name import build_task
from torchrun import refuse_torchrun


def make_launcher(hydra_overrides: Sequence[str]) -> Any:
    """Return the launcher that the Hydra overrides name, its jobs being cells of ``train.py``."""
    refuse_torchrun()
    loader = GlobalHydra.instance().config_loader()
    config = loader.load_configuration(
        "train", overrides=list(hydra_overrides), run_mode=RunMode.MULTIRUN
    )
    context = HydraContext(config_loader=loader, callbacks=Callbacks())
    return Plugins.instance().instantiate_launcher(
        hydra_context=context, task_function=run, config=config
    )


def launch(launcher: Any, chosen: Sequence[Planned]) -> None:
    """Run ``chosen`` by ``launcher``; wait for them.

    A cell whose process died without a record is recorded as failed, with the reason.
    """
    for wave in waves(chosen):
        stamps = [planned.folder.stamp() for planned in wave]
        if hasattr(launcher, "reserve"):
            for planned, ticket in zip(wave, launcher.reserve(len(wave)), strict=True):
                planned.folder.write_ticket(ticket)
        results = launcher.launch([list(planned.cell.overrides) for planned in wave], 0)
        for planned, stamp, result in zip(wave, stamps, results, strict=True):
            _record_failure(planned.cell, planned.folder, stamp, failure_of(result))


def failure_of(result: JobReturn) -> BaseException | None:
    """Return why a job failed, None when it did not."""
    if result.status == JobStatus.COMPLETED:
        return None
    failure = result._return_value  # the public property prints before it raises
    return failure if isinstance(failure, BaseException) else RunError(str(failure))


def _record_failure(
    cell: Cell, folder: CellFolder, stamp: int | None, failure: BaseException | None
) -> None:
    """Record why a cell has no record, unless its process wrote one or another runs it.

    A cell that was refused before it started has not failed: it is said, and nothing is recorded.
    """
    if isinstance(failure, UserError):
        print(f"error: {which_cell(cell.config)}: {failure}", file=sys.stderr)
    never = isinstance(failure, NeverStartedError | UserError)
    try:
        if failure is None or never or folder.stamp() != stamp or not folder.acquire():
            return
        if folder.stamp() == stamp:
            stopped = isinstance(failure, WorkerStoppedError | DiskFullError)
            status = "unfinished" if stopped else "failed"
            folder.write_config(resolved(cell.config))
            folder.write_record(_record_without_result(cell, status, failure))
    except DiskFullError as full:  # missing it stays, and the same command runs it
        print(f"error: {which_cell(cell.config)}: {full}", file=sys.stderr)
    finally:
        folder.release()


def _record_without_result(cell: Cell, status: str, failure: BaseException) -> dict[str, Any]:
    measured = build_measured_task(cell.config, build_task(cell.config.task))
    return {
        **described(cell.config),
        "max_len": measured.max_len,
        "weights": cell.weights,
        "cell": cell.name,
        **source(),
        "status": status,
        "reason": " ".join(str(failure).split())[:300] or type(failure).__name__,
        "finished_at": now(),
    }
