"""W&B as a mirror of our own records: one run per cell, grouped by experiment.

A W&B failure of any kind costs a warning, never a run.  Curves are logged against our own
``step``, because W&B's starts at 0 again when an offline run is resumed.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.schema import LoggerConfig


class Tracker:
    """A W&B run that cannot fail: any error ends the mirroring with a warning."""

    def __init__(self, logger: LoggerConfig, **arguments: Any) -> None:
        self._run: Any = None
        if logger.mode == "disabled":
            return
        with self._shielded():
            os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
            import wandb

            Path(logger.directory).mkdir(parents=True, exist_ok=True)
            self._run = wandb.init(
                project=logger.project,
                entity=logger.entity,
                mode=logger.mode,
                dir=logger.directory,
                reinit="finish_previous",
                settings=wandb.Settings(
                    console="off", silent=True, init_timeout=30, x_disable_stats=True
                ),
                **arguments,
            )
            self._run.define_metric("step", hidden=True)
            self._run.define_metric("*", step_metric="step")

    def log(self, values: dict[str, Any]) -> None:
        """Log numbers; ``step`` among them is ours."""
        if self._run is not None:
            with self._shielded():
                self._run.log(values)

    def summarise(self, values: dict[str, Any]) -> None:
        """Enter final figures into the run's summary."""
        if self._run is not None:
            with self._shielded():
                self._run.summary.update(values)

    def log_images(self, paths: list[Path]) -> None:
        """Log pictures under their file names."""
        if self._run is not None:
            with self._shielded():
                import wandb

                self._run.log({path.stem: wandb.Image(str(path)) for path in paths})

    def log_table(self, name: str, table: pd.DataFrame) -> None:
        """Log a table."""
        if self._run is not None:
            with self._shielded():
                import wandb

                plain = table.astype(object).where(table.notna(), None)
                self._run.log({name: wandb.Table(dataframe=plain)})

    def finish(self, failed: bool = False) -> None:
        """Close the run."""
        if self._run is not None:
            with self._shielded():
                self._run.finish(exit_code=int(failed))
        self._run = None

    @contextlib.contextmanager
    def _shielded(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            reason = str(error).strip().split("\n")[0]
            print(f"warning: W&B: {reason}; going on without it", file=sys.stderr)
            self._run = None
