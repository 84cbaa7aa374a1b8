"""Launch cells with the launcher that the command line names."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from hydra.types import HydraContext, RunMode

from common import UserError, WorkerDiedError
from experiments.config import deciding_settings, measured_task
from experiments.names import identity
from experiments.plan import Planned, Sweep, one_of_each_training
from experiments.run import finished, run_job
from experiments.runs import command, provenance
from hydra_plugins.local_launcher import failure_of
from tasks.task import build_task


def launch(
    sweep: Sweep,
    hydra_overrides: Sequence[str],
    find_open: Callable[[], list[Planned]],
    hours: float | None = None,
) -> None:
    """Run the cells of the sweep that ``find_open`` returns, until it returns none.

    ``hours`` stops cleanly; only the local launcher can.
    """
    for cell in sweep.cells:  # a task that cannot be built is refused here
        measured_task(cell.config, build_task(cell.config.task))
    launcher = make_launcher(hydra_overrides)
    if hours is not None:
        if not hasattr(launcher, "stop_after"):
            raise UserError("max_hours: only with hydra/launcher=local; a cluster has limits")
        launcher.stop_after(3600 * hours)
    launch_cells(launcher, find_open)


def launch_cells(launcher: Any, find_open: Callable[[], list[Planned]]) -> None:
    """Run one cell of each training that ``find_open`` returns, until it returns nothing new.

    The other cells of a training measure its weights in the next round.
    """
    launched: set[str] = set()
    while True:
        chosen = [p for p in find_open() if p.cell.name not in launched]
        chosen = one_of_each_training(chosen)
        if not chosen:
            return
        launched |= {planned.cell.name for planned in chosen}
        try:
            results = launcher.launch([planned.cell.overrides for planned in chosen], 0)
        except RuntimeError as error:  # submitit: no SLURM, or one job's end without a result
            first = " ".join(str(error).splitlines()[:2])
            print(f"error: {first}; jobs in the queue go on, and the same command continues",
                  file=sys.stderr)  # fmt: skip
            return
        for planned, result in zip(chosen, results, strict=True):
            record_lost_worker(planned, result)


def record_lost_worker(planned: Planned, result: JobReturn) -> None:
    """Record a cell as failed if its process ended without a record."""
    failure, config, cell = failure_of(result), planned.cell.config, planned.cell
    if not isinstance(failure, WorkerDiedError) or planned.run.is_running():
        return
    if finished(planned.run, cell.name):  # it died after finishing
        return
    row = identity(deciding_settings(config)) | {
        "max_len": measured_task(config, build_task(config.task)).max_len,
        "status": "failed",
        "reason": str(failure),
        "run": cell.run,
        "cell": cell.name,
        **provenance(),
    }
    record = {"row": row, "config": deciding_settings(config), "command": command()}
    planned.run.write_record(cell.name, record)


def make_launcher(hydra_overrides: Sequence[str]) -> Any:
    """Return the launcher that the Hydra overrides name; its jobs are cells of train.py."""
    loader = GlobalHydra.instance().config_loader()
    config = loader.load_configuration(
        "train", overrides=list(hydra_overrides), run_mode=RunMode.MULTIRUN
    )
    callbacks: Any = Callback()
    return Plugins.instance().instantiate_launcher(
        hydra_context=HydraContext(config_loader=loader, callbacks=callbacks),
        task_function=run_job,
        config=config,
    )
