"""W&B as a mirror of our records: a run per cell, and one for an experiment's figures.

If W&B fails, one warning is printed and the cell continues without it. Curves use our own `step`:
W&B's starts at 0 again when an offline run is resumed.
"""

import contextlib
import dataclasses
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.config import CellConfig, LoggerConfig, deciding_settings
from experiments.display import label, typed_settings
from experiments.names import cell_name
from experiments.row import read_curve
from experiments.run_folder import Run
from experiments.table import identity
from training.trainer import Event, Validation

INIT_SECONDS = 20
FINISH_SECONDS = 30
TAGS = ("task", "format", "size", "model", "dim", "recipe", "seed")


class Tracker:
    """A W&B run; does nothing once W&B has failed."""

    def __init__(self, logger: LoggerConfig, **arguments: Any) -> None:
        self._run: Any = None
        if logger.mode != "disabled":
            with self._safely():
                self._run = _start(logger, arguments)

    def listen(self, event: Event) -> None:
        if isinstance(event, Validation):
            self.log(dataclasses.asdict(event))

    def log(self, values: Mapping[str, Any]) -> None:
        """Log values, including our own `step`."""
        if self._run is not None:
            with self._safely():
                self._run.log(dict(values))

    def log_figures(self, figures: Sequence[Path], table: pd.DataFrame) -> None:
        if self._run is not None:
            with self._safely():
                import wandb

                plain = table.astype(object).where(table.notna(), None)
                results = wandb.Table(dataframe=plain, allow_mixed_types=True)
                images = {path.stem: wandb.Image(str(path)) for path in figures}
                self._run.log({**images, "results": results})

    def finish(self, summary: Mapping[str, Any], failed: bool = False) -> None:
        """Write the summary and close the run; online, wait a while for the upload."""
        if self._run is not None:
            with self._safely():
                self._run.summary.update({k: v for k, v in summary.items() if v is not None})
                self._run.finish(exit_code=int(failed))

    @contextlib.contextmanager
    def _safely(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            print(f"warning: W&B: {_first_line(error)}; continuing without it", file=sys.stderr)
            self._run = None


def track_cell(config: CellConfig, run: Run) -> Tracker:
    """The tracker of a cell; its id is the cell's, its group the experiment. The curve of an
    interrupted cell is logged again, so that every offline directory holds all of it: each
    `wandb sync` rewrites the run."""
    settings = deciding_settings(config)
    columns = identity(settings)
    named = re.compile(r"\+*(task|model|recipe\.learning_rate)")
    name = " ".join([label(columns), *filter(named.match, typed_settings())])[:128]
    theirs = filter(None, os.environ.get("WANDB_TAGS", "").split(","))
    tracker = Tracker(
        config.logger,
        id=cell_name(config),
        name=os.environ.get("WANDB_NAME", name),
        tags=[*(f"{key}:{columns[key]}"[:64] for key in TAGS), *theirs],
        group=config.experiment_name,
        job_type="cell",
        config=settings,
    )
    if run.training() is None:
        curve = read_curve(run.folder / "curve.csv") or {}
        for values in zip(*curve.values(), strict=True):
            tracker.log(dict(zip(curve, values, strict=True)))
    return tracker


def log_figures(
    logger: LoggerConfig, experiment: str, figures: Sequence[Path], table: pd.DataFrame
) -> None:
    """Log an experiment's figures and table as a run of their own."""
    tracker = Tracker(logger, name=f"{experiment} figures", group=experiment, job_type="figures")
    tracker.log_figures(figures, table)
    tracker.finish({})


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _start(logger: LoggerConfig, arguments: dict[str, Any]) -> Any:
    """Start a run; fall back to offline without a key or network."""
    import wandb

    Path(logger.directory).mkdir(parents=True, exist_ok=True)
    settings = wandb.Settings(
        console="off", silent=True, init_timeout=INIT_SECONDS, finish_timeout=FINISH_SECONDS,
        x_disable_stats=True,
    )  # fmt: skip

    def init(mode: Any) -> Any:
        resume: Any = "allow" if mode == "online" and "id" in arguments else None
        return wandb.init(
            project=logger.project, entity=logger.entity, dir=logger.directory, mode=mode,
            reinit="finish_previous", resume=resume, settings=settings, **arguments,
        )  # fmt: skip

    try:
        if logger.mode == "online" and not wandb.login(prompt=False):
            raise RuntimeError("no API key")
        run = init(logger.mode)
    except Exception as error:
        if logger.mode == "offline":
            raise
        print(f"warning: W&B is offline ({_first_line(error)}); `wandb sync` uploads later",
              file=sys.stderr)  # fmt: skip
        run = init("offline")
    run.define_metric("step", hidden=True)
    run.define_metric("*", step_metric="step")
    return run
