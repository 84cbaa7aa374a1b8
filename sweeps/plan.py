"""A sweep: which cells are done, running, failed or missing; launching what is missing.

The state of a sweep is nothing but the state of its cells on disk, so any number of sweeps may
be started, killed, and started again, here or on a cluster that shares the folders.
"""

from __future__ import annotations

import json
import math
import tempfile
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

from config.build import check_buildable
from config.grid import Cell, Experiment, cells, describe
from config.identity import deciding
from errors import RunError, UserError
from files import clear_disk_errors
from models.flops import training_step_flops
from records.provenance import now, source
from records.store import Run, enter, merge, read_table
from sweeps.job import run
from sweeps.slurm_queue import living
from sweeps.workers import WorkerStoppedError
from torchrun import refuse_torchrun

# A cell whose process dies this often is given up, where the launcher does not count itself.
ATTEMPTS = 3

KEPT = ("done", "running")

# Floating-point operations a second of one core until this experiment has measured its own.
ASSUMED_FLOPS_PER_SECOND = 2e10


@dataclass
class Planned:
    """A cell and how it stands: done, running, queued, failed, unfinished or missing."""

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
        self.runs_dir = Path(runs_dir)
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
        plan = [self._stand(cell, rows) for cell in self.cells]
        self._mark_queued([planned for planned in plan if planned.status not in KEPT])
        return plan

    def _mark_queued(self, open_cells: Sequence[Planned]) -> None:
        """Find the cells whose jobs a batch system still has, whoever submitted them."""
        tickets = [(planned, planned.run.ticket()) for planned in open_cells]
        named = [(p, (t["slurm_job_name"], t["place"])) for p, t in tickets if t]
        alive = living(name for _, (name, _) in named)
        for planned, job in named:
            if alive is None or job in alive:
                planned.status = "queued"
                planned.reason = "squeue does not answer" if alive is None else f"job {job[0]}"

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

        A cell whose process died without a record is recorded as failed, with the reason.  Some
        launchers break as a whole when a worker dies (joblib's processes): the cells that had
        been started are then tried again one at a time, so that each failure finds its cell.
        """
        launcher = make_launcher(hydra_overrides)
        batches = [list(chosen)]
        deaths: Counter[str] = Counter()
        while batches:
            batch = batches.pop(0)
            before = {p.cell.name: (p.run.stamp(), p.run.last_start()) for p in batch}
            try:
                results = self._launch_batch(launcher, batch)
            except UserError:
                raise
            except Exception as error:
                batches += self._after_a_break(batch, before, deaths, error)
                continue
            for planned, result in zip(batch, results, strict=True):
                self._record_failure(planned, before[planned.cell.name][0], failure_of(result))

    def _launch_batch(self, launcher: Any, batch: Sequence[Planned]) -> Sequence[JobReturn]:
        if hasattr(launcher, "reserve"):
            for planned, ticket in zip(batch, launcher.reserve(len(batch)), strict=True):
                planned.run.write_ticket(ticket)
        return launcher.launch([list(planned.cell.overrides) for planned in batch], 0)

    def _after_a_break(
        self,
        batch: Sequence[Planned],
        before: Mapping[str, tuple[int | None, int | None]],
        deaths: Counter[str],
        error: Exception,
    ) -> list[list[Planned]]:
        """Return what is left to launch after the launcher itself fell over in ``batch``.

        Raises its error when no cell had been started: then it is not a cell's doing.
        """
        left = [p for p in batch if p.run.stamp() == before[p.cell.name][0]]
        suspects = [p for p in left if p.run.last_start() != before[p.cell.name][1]]
        if not suspects:
            raise error
        again: list[list[Planned]] = [[p for p in left if p not in suspects]]
        for planned in suspects:
            deaths[planned.cell.name] += len(batch) == 1
            if deaths[planned.cell.name] < ATTEMPTS:
                again.append([planned])
            else:
                self._record_failure(planned, before[planned.cell.name][0], error)
        return [part for part in again if part]

    def _record_failure(
        self, planned: Planned, stamp: int | None, failure: BaseException | None
    ) -> None:
        """Record why a cell has no record, unless its process wrote one or another runs it."""
        run = planned.run
        if failure is None or run.stamp() != stamp or not run.acquire():
            return
        try:
            if run.stamp() == stamp:
                status = "unfinished" if isinstance(failure, WorkerStoppedError) else "failed"
                run.write_record(_record_without_result(planned.cell, status, failure))
        finally:
            run.release()

    def require_writable(self) -> None:
        """Raise now rather than after hours when results could not be kept."""
        for folder in (self.results_dir / self.experiment.name, self.runs_dir):
            with clear_disk_errors(folder):
                folder.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryFile(dir=folder) as probe:
                    probe.write(b"0" * 4096)

    def table(self) -> pd.DataFrame:
        """Return the results table as it is."""
        return read_table(self.results_dir / self.experiment.name / "results.csv")

    def enter(self) -> pd.DataFrame:
        """Merge the records of this machine into the results table; return the table."""
        return enter(self.results_dir, self.experiment.name, self.runs.values())

    def merge(self, runs: Iterable[Run]) -> None:
        """Merge the records of these runs into the results table."""
        merge(self.results_dir, self.experiment.name, runs)

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


def make_launcher(hydra_overrides: Sequence[str]) -> Any:
    """Return the launcher that the Hydra overrides name, its jobs being cells of ``train.py``."""
    refuse_torchrun()
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


def failure_of(result: JobReturn) -> BaseException | None:
    """Return why a job failed, None when it did not."""
    if result.status == JobStatus.COMPLETED:
        return None
    failure = result._return_value
    return failure if isinstance(failure, BaseException) else RunError(str(failure))


def _record_without_result(cell: Cell, status: str, failure: BaseException) -> dict[str, Any]:
    reason = " ".join(str(failure).split())[:300] or type(failure).__name__
    task, _ = check_buildable(cell.config)
    return {
        **describe(cell.config),
        "max_len": task.max_len,
        "cell": cell.name,
        **source(),
        "status": status,
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
