"""W&B as a mirror of our own records: a run per cell, and one for an experiment's figures.

If W&B fails, one warning is printed and the cell goes on without it. Curves are drawn against our
own ``step``: W&B's starts at 0 again when an offline run is resumed. WANDB_* variables count
where our own key has its default.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.config import CellConfig, LoggerConfig, deciding_settings
from experiments.names import cell_name, identity
from experiments.runs import Run
from training.trainer import Event, Validation

INIT_SECONDS = 20
FINISH_SECONDS = 30
TAGS = ("task", "format", "size", "model", "dim", "recipe", "seed")


class Tracker:
    """A W&B run; does nothing once W&B has failed."""

    def __init__(self, logger: LoggerConfig, **arguments: Any) -> None:
        self._run: Any = None
        mode = _mode(logger)
        if mode != "disabled":
            self._run = self._safely(lambda run: _start(logger, mode, arguments), start=True)

    def listen(self, event: Event) -> None:
        """Log a row of the learning curve."""
        if isinstance(event, Validation):
            self.log(dataclasses.asdict(event))

    def log(self, values: dict[str, Any]) -> None:
        """Log values, our own ``step`` among them."""
        self._safely(lambda run: run.log(values))

    def finish(self, summary: dict[str, Any], failed: bool = False) -> None:
        """Write the summary and close the run; online, wait for the upload for a while."""
        known = {key: value for key, value in summary.items() if value is not None}
        self._safely(lambda run: run.summary.update(known))
        self._safely(lambda run: run.finish(exit_code=int(failed)))
        self._run = None

    def _safely(self, action: Callable[[Any], Any], start: bool = False) -> Any:
        if self._run is None and not start:
            return None
        try:
            return action(self._run)
        except Exception as error:
            print(f"warning: W&B: {_first_line(error)}; continuing without it", file=sys.stderr)
            self._run = None
        return None


def track_cell(config: CellConfig, run: Run) -> Tracker:
    """Return the tracker of a cell: its id is the cell's, its group the experiment.

    The curve of an interrupted cell is logged again, so that every offline directory holds all of
    it: `wandb sync` writes each from the run's beginning, the last one last.
    """
    columns = identity(deciding_settings(config))
    ours = {
        "WANDB_NAME": ("name", "{model} D={dim} {task} n={size} seed={seed}".format(**columns)),
        "WANDB_TAGS": ("tags", [f"{key}:{columns[key]}"[:64] for key in TAGS]),
    }
    tracker = Tracker(
        config.logger,
        id=cell_name(config),
        group=config.experiment_name or "cells",
        job_type="cell",
        config=deciding_settings(config),
        **{key: value for name, (key, value) in ours.items() if name not in os.environ},
    )
    path = run.folder / "curve.csv"
    if path.exists() and run.training() is None:
        for row in pd.read_csv(path).to_dict("records"):
            tracker.log({str(key): value for key, value in row.items()})
    return tracker


def log_figures(
    logger: LoggerConfig, experiment: str, figures: Sequence[Path], table: pd.DataFrame
) -> None:
    """Log an experiment's figures and table as a run of their own."""
    if _mode(logger) == "disabled":
        return
    import wandb

    tracker = Tracker(logger, name=f"{experiment} figures", group=experiment, job_type="figures")
    tracker.log({path.stem: wandb.Image(str(path)) for path in figures})
    plain = table.astype(object).where(table.notna(), None)
    tracker.log({"results": wandb.Table(dataframe=plain, allow_mixed_types=True)})
    tracker.finish({})


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _mode(logger: LoggerConfig) -> str:
    if os.environ.get("WANDB_DISABLED", "").lower() in ("true", "1", "yes"):
        return "disabled"
    if logger.mode == "offline":  # the default
        return os.environ.get("WANDB_MODE", logger.mode)
    return logger.mode


def _start(logger: LoggerConfig, mode: str, arguments: dict[str, Any]) -> Any:
    """Start a run; fall back to offline without a key or network."""
    import wandb

    environment = {"project": "WANDB_PROJECT", "entity": "WANDB_ENTITY", "dir": "WANDB_DIR"}
    given: dict[str, Any] = {
        "project": logger.project, "entity": logger.entity, "dir": logger.directory,
    }  # fmt: skip
    default = {"project": "cotcost", "entity": None, "dir": "."}
    for key, name in environment.items():
        if given[key] == default[key] and name in os.environ:
            given[key] = os.environ[name]
    Path(given["dir"]).mkdir(parents=True, exist_ok=True)
    settings = wandb.Settings(
        console="off", silent=True, init_timeout=INIT_SECONDS, finish_timeout=FINISH_SECONDS,
        x_disable_stats=True,
    )  # fmt: skip

    def init(mode: Any) -> Any:
        resume: Any = "allow" if mode == "online" and "id" in arguments else None
        return wandb.init(
            **given, mode=mode, reinit="finish_previous", resume=resume, settings=settings,
            **arguments,
        )  # fmt: skip

    if mode == "online":
        try:
            if not wandb.login(prompt=False):
                raise RuntimeError("no API key")
            run = init("online")
        except Exception as error:
            why = _first_line(error)
            print(f"warning: W&B is offline ({why}); `wandb sync` uploads later", file=sys.stderr)
            run = init("offline")
    else:
        run = init(mode)
    run.define_metric("step", hidden=True)
    run.define_metric("*", step_metric="step")
    return run
