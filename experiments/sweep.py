"""A sweep: which cells are done, running, failed or missing; launching what is missing.

The state of a sweep is nothing but the state of its cells on disk, so any number of sweeps may
be started, killed, and started again, here or on a cluster that shares the folders.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pandas as pd
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.types import HydraContext, RunMode

from errors import RunError, UserError
from experiments.grid import Cell, Experiment, cells, describe
from experiments.identity import deciding
from experiments.objects import check_buildable
from experiments.provenance import now
from experiments.store import Run, enter, read_table
from models.flops import training_step_flops

# Floating-point operations a second of one core until this experiment has measured its own.
ASSUMED_FLOPS_PER_SECOND = 2e10


@dataclass
class Planned:
    """A cell and how it stands: done, running, failed, unfinished or missing."""

    cell: Cell
    run: Run
    status: str
    reason: str | None = None


class Sweep:
    """One experiment's cells, planned against the runs on this machine and the results table."""

    def __init__(
        self,
        experiment: Experiment,
        results_dir: str = "results",
        runs_dir: str = "runs",
        overrides: Sequence[str] = (),
        only: Mapping[str, Any] | None = None,
        retry_failed: bool = False,
        remeasure: bool = False,
    ) -> None:
        self.experiment = experiment
        self.results_dir = Path(results_dir)
        self.settings = (
            f"experiment_name={experiment.name}",
            f"results_dir={quoted(results_dir)}",
            f"runs_dir={quoted(runs_dir)}",
            "under_sweep=true",
            "progress=false",
        )
        chosen = cells(experiment, [*overrides, *self.settings])
        self.cells = [cell for cell in chosen if _matches(cell, only or {})]
        if not self.cells:
            raise UserError(f"only={only}: no cell of {experiment.name} matches")
        self.runs = {cell.name: Run(runs_dir, cell.name) for cell in self.cells}
        self.retry_failed = retry_failed
        self.remeasure = remeasure

    def plan(self) -> list[Planned]:
        """Return how each cell stands now."""
        table = self.table()
        rows = {} if self.remeasure else dict(zip(table["cell"], table["status"], strict=True))
        return [self._stand(cell, rows) for cell in self.cells]

    def _stand(self, cell: Cell, rows: dict[str, str]) -> Planned:
        run = self.runs[cell.name]
        record = run.record()
        if record and record["status"] == "done":
            return Planned(cell, run, "done")
        if rows.get(cell.name) == "done":
            return Planned(cell, run, "done")
        if run.is_running():
            return Planned(cell, run, "running")
        if record:
            return Planned(cell, run, record["status"], record.get("reason"))
        return Planned(cell, run, "missing")

    def to_launch(self, plan: Iterable[Planned]) -> list[Planned]:
        """Return the cells that a launch would run."""
        wanted = {"missing", "unfinished"} | ({"failed"} if self.retry_failed else set())
        return [planned for planned in plan if planned.status in wanted]

    def launch(self, chosen: Sequence[Planned], hydra_overrides: Sequence[str]) -> None:
        """Run ``chosen`` by the launcher that the Hydra overrides name; wait for them.

        A cell whose process died without a record is recorded as failed, with the reason.
        """
        launcher = _launcher(hydra_overrides)
        jobs = [list(planned.cell.overrides) for planned in chosen]
        for planned, result in zip(chosen, launcher.launch(jobs, 0), strict=True):
            failure = _failure(result)
            if failure is not None and self._needs_record(planned.run):
                planned.run.write_record(_failed_record(planned.cell, failure))

    def _needs_record(self, run: Run) -> bool:
        record = run.record()
        return not run.is_running() and (record is None or record["status"] == "unfinished")

    def table(self) -> pd.DataFrame:
        """Return the results table as it is."""
        return read_table(self.results_dir / self.experiment.name / "results.csv")

    def enter(self) -> pd.DataFrame:
        """Merge the records of this machine into the results table; return the table."""
        return enter(self.results_dir, self.experiment.name, self.runs.values())

    def counts(self) -> Counter[str]:
        """Return how many cells stand how."""
        return Counter(planned.status for planned in self.plan())


def _matches(cell: Cell, only: Mapping[str, Any]) -> bool:
    """Tell whether the cell has, in every column that ``only`` names, one of its values."""
    described = describe(cell.config) | {"cell": cell.name}
    return all(
        described[key] in (wanted if isinstance(wanted, list) else [wanted])
        for key, wanted in only.items()
    )


def quoted(value: Any) -> str:
    """Return ``value`` as Hydra's override grammar writes it."""
    if value is None:
        return "null"
    if isinstance(value, bool | int | float):
        return str(value).lower()
    return "'" + str(value).replace("'", "\\'") + "'"


def _launcher(hydra_overrides: Sequence[str]) -> Any:
    from train import run

    loader = GlobalHydra.instance().config_loader()
    config = loader.load_configuration(
        "train", overrides=list(hydra_overrides), run_mode=RunMode.MULTIRUN
    )
    context = HydraContext(config_loader=loader, callbacks=_callbacks())
    return Plugins.instance().instantiate_launcher(
        hydra_context=context, task_function=run, config=config
    )


def _callbacks() -> Any:
    from hydra._internal.callbacks import Callbacks

    return Callbacks()


def _failure(result: JobReturn) -> BaseException | None:
    if result.status == JobStatus.COMPLETED:
        return None
    failure = result._return_value
    return failure if isinstance(failure, BaseException) else RunError(str(failure))


def _failed_record(cell: Cell, failure: BaseException) -> dict[str, Any]:
    reason = " ".join(str(failure).split())[:300] or type(failure).__name__
    task, _ = check_buildable(cell.config)
    return {
        **describe(cell.config),
        "max_len": task.max_len,
        "cell": cell.name,
        "status": "failed",
        "reason": reason,
        "finished_at": now(),
    }


def training_flops(cell: Cell) -> float:
    """Return the FLOPs of the cell's whole training budget, every sequence at full length."""
    recipe, data = cell.config.recipe, cell.config.data
    sequences = recipe.total_steps(data.train) * min(recipe.batch_size, data.train)
    described = deciding(cell.config)
    return sequences * _flops_per_sequence(
        json.dumps([described["task"], described["model"]]), cell
    )


_FLOPS: dict[str, int] = {}


def _flops_per_sequence(key: str, cell: Cell) -> int:
    if key not in _FLOPS:
        task, model = check_buildable(cell.config)
        _FLOPS[key] = training_step_flops(model.flops(task.max_len))
    return _FLOPS[key]


class CostEstimate:
    """Seconds a cell will take at most, from the rates that this experiment has measured.

    A rate is training FLOPs per second, by model and width where measured, else the nearest that
    was, else `ASSUMED_FLOPS_PER_SECOND`.
    """

    def __init__(self, table: pd.DataFrame) -> None:
        done = table[table["status"].eq("done") & (table["train_seconds"].fillna(0) > 0)]
        rate = done["flops_training"].astype(float) / done["train_seconds"].astype(float)
        self.measured: dict[tuple[str, int], float] = {}
        for key, values in rate.groupby([done["model"], done["dim"].astype(int)]):
            model, dim = cast("tuple[str, int]", key)
            self.measured[model, dim] = float(values.median())

    def rate(self, model: str, dim: int) -> float:
        """Return FLOPs per second expected of ``model`` at width ``dim``."""
        near = sorted(
            self.measured,
            key=lambda known: (known[0] != model, abs(math.log(known[1] / dim))),
        )
        return self.measured[near[0]] if near else ASSUMED_FLOPS_PER_SECOND

    def seconds(self, cell: Cell) -> float:
        """Return the seconds that the cell's training budget would take on one worker."""
        return training_flops(cell) / self.rate(cell.config.model.name, cell.config.model.dim)
