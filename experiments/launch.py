"""Run cells with the Hydra launcher named on the command line."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.experimental.callback import Callback
from hydra.types import HydraContext, RunMode

from common import UserError, failure_of
from experiments.config import measured_task
from experiments.display import label
from experiments.estimate import training_flops
from experiments.grid import Cell, quoted
from experiments.plan import one_of_each_training
from experiments.run import run_job
from tasks.task import build_task
from training.device import resolve_device


def require_runnable(cells: Sequence[Cell], launcher: Any) -> None:
    """Raise UserError for a cell that cannot be built, or a device that is missing here."""
    for cell in cells:
        try:
            measured_task(cell.config, build_task(cell.config.task))
            training_flops(cell)
        except UserError as error:
            raise UserError(f"{label(cell.identity)}: {error}") from None
        except Exception as error:
            error.add_note(f"in cell {label(cell.identity)}")
            raise
        if hasattr(launcher, "stop_after"):  # a cluster's nodes may have other devices
            resolve_device(cell.config.machine.device)


def launch_cells(launcher: Any, find_open: Callable[[], list[Cell]]) -> list[UserError]:
    """Run the cells that `find_open` returns, in rounds, until there are no new ones. A round has
    one cell per training run; its other cells evaluate the weights in later rounds. Returns the
    user errors of cells."""
    launched, not_trained, refused = set[str](), set[str](), list[UserError]()
    while True:
        chosen = one_of_each_training(
            cell for cell in find_open()
            if cell.name not in launched and cell.run.name not in not_trained
        )  # fmt: skip
        if not chosen:
            return refused
        launched |= {cell.name for cell in chosen}
        try:
            jobs = launcher.launch([cell.overrides for cell in chosen], 0)
        except RuntimeError as error:  # submitit: one job's end without a result
            if str(error).startswith("Could not detect"):  # no SLURM
                raise
            first = " ".join(str(error).splitlines()[:2])
            print(f"error: {first}; queued jobs keep running; rerun the command to continue",
                  file=sys.stderr)  # fmt: skip
            return refused
        refused += [why for job in jobs if isinstance(why := failure_of(job), UserError)]
        not_trained |= {cell.run.name for cell in chosen if cell.run.training() is None}


def make_launcher(hydra_overrides: Sequence[str], runs_dir: str, hours: float | None) -> Any:
    """The launcher that the Hydra overrides name; its jobs are cells of train.py. After `hours` it
    stops cleanly (local launcher only)."""
    loader = GlobalHydra.instance().config_loader()
    words = [*hydra_overrides, f"runs_dir={quoted(runs_dir)}"]  # where submitit writes
    callbacks: Any = Callback()
    launcher: Any = Plugins.instance().instantiate_launcher(
        hydra_context=HydraContext(config_loader=loader, callbacks=callbacks),
        task_function=run_job,
        config=loader.load_configuration("train", words, RunMode.MULTIRUN),
    )
    if hours is not None:
        if not hasattr(launcher, "stop_after"):
            raise UserError(
                "max_hours works only with hydra/launcher=local; on a cluster, set "
                "hydra.launcher.timeout_min"
            )
        launcher.stop_after(3600 * hours)
    return launcher
