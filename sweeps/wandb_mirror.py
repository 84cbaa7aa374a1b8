"""W&B as a mirror of our own records: a run per cell, and a run per update of the figures.

A W&B failure of any kind costs one line of warning, never a run, and no call waits longer than
its limit below.  Online without a key or a network, the run goes to the local directory instead,
where ``wandb sync`` finds it later.  Curves are logged against our own ``step``: W&B's starts at
0 again when an offline run is resumed.
"""

from __future__ import annotations

import contextlib
import csv
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from config.columns import described, resolved
from config.schema import CellConfig, LoggerConfig

INIT_SECONDS = 20
UPLOAD_SECONDS = 30
CALL_SECONDS = 60
LONGEST_TAG = 64
TAGS = ("task", "format", "size", "model", "dim", "recipe", "seed")

_online_failed = False


def track_cell(config: CellConfig, cell: str, folder: Path) -> Tracker:
    """Return the tracker of one cell: its id is the cell's, its group the experiment.

    The curve of an interrupted cell (``folder``/curve.csv) is logged again, so that every offline
    directory of the cell holds the whole curve: `wandb sync` writes each from the run's beginning,
    the last one last.  An online run that W&B itself resumes needs no repetition.
    """
    columns = described(config)
    tracker = Tracker(
        config.logger,
        id=cell,
        name="{model} D={dim} {task} n={size} seed={seed}".format(**columns),
        group=config.experiment_name or "cells",
        job_type="cell",
        tags=[f"{key}:{columns[key]}"[:LONGEST_TAG] for key in TAGS],
        config=resolved(config),
    )
    tracker.use_own_step()
    if (folder / "checkpoint.pt").exists() and not tracker.resumed:
        for row in _read_curve(folder / "curve.csv"):
            tracker.log(row)
    return tracker


def track_figures(
    logger: LoggerConfig, experiment: str, command: str, paths: Sequence[Path], table: pd.DataFrame
) -> None:
    """Send one update of an experiment's figures to a run of its own.

    Bitmaps go in as images, the results as a table, report.html as an artifact.
    """
    tracker = Tracker(
        logger,
        name=f"{experiment} figures",
        group=experiment,
        job_type="figures",
        tags=["figures"],
        config={"experiment": experiment, "command": command, "rows": len(table)},
    )
    tracker.log_images([path for path in paths if path.suffix == ".png"])
    tracker.log_table("results", table)
    tracker.log_artifact(
        f"{experiment}-report", "report", [p for p in paths if p.suffix == ".html"]
    )
    tracker.finish()


def _read_curve(path: Path) -> list[dict[str, float]]:
    """Return the rows of a learning curve; none when it is not there or not readable."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [
                {key: float(value) for key, value in row.items()} for row in csv.DictReader(file)
            ]
        return [{**row, "step": int(row["step"])} for row in rows]
    except (OSError, ValueError, TypeError, KeyError):
        return []


class Tracker:
    """A W&B run that cannot fail: an error or a call over its time limit ends the mirroring."""

    def __init__(self, logger: LoggerConfig, **arguments: Any) -> None:
        self._run: Any = None
        if logger.mode != "disabled":
            self._run = self._safely(lambda: _start(logger, arguments))

    @property
    def resumed(self) -> bool:
        """Whether W&B continues a run that it holds already (online only)."""
        return bool(getattr(self._run, "resumed", False))

    def use_own_step(self) -> None:
        """Draw every curve against our ``step``."""
        self._with_run(
            lambda run: (
                run.define_metric("step", hidden=True),
                run.define_metric("*", step_metric="step"),
            )
        )

    def log(self, values: dict[str, Any]) -> None:
        """Log numbers; ``step`` among them is ours."""
        self._with_run(lambda run: run.log(values))

    def summarise(self, values: dict[str, Any]) -> None:
        """Enter final figures into the run's summary."""
        self._with_run(lambda run: run.summary.update(values))

    def log_images(self, paths: Sequence[Path]) -> None:
        """Log pictures under their file names."""

        def send(run: Any) -> None:
            import wandb

            run.log({path.stem: wandb.Image(str(path)) for path in paths})

        if paths:
            self._with_run(send)

    def log_table(self, name: str, table: pd.DataFrame) -> None:
        """Log a table; what was not measured stays empty."""

        def send(run: Any) -> None:
            import wandb

            plain = table.astype(object).where(table.notna(), None)
            run.log({name: wandb.Table(dataframe=plain, allow_mixed_types=True)})

        self._with_run(send)

    def log_artifact(self, name: str, kind: str, paths: Sequence[Path]) -> None:
        """Log files as one artifact; the files may change afterwards."""

        def send(run: Any) -> None:
            import wandb

            artifact = wandb.Artifact(name, type=kind)
            for path in paths:
                artifact.add_file(str(path), policy="mutable")
            run.log_artifact(artifact)

        if paths:
            self._with_run(send)

    def finish(self, failed: bool = False) -> None:
        """Close the run; online, wait for the upload, but not longer than `UPLOAD_SECONDS`."""
        self._with_run(lambda run: run.finish(exit_code=int(failed)))
        self._run = None

    def _with_run(self, action: Callable[[Any], Any]) -> None:
        run = self._run
        if run is not None:
            self._safely(lambda: action(run))

    def _safely(self, action: Callable[[], Any]) -> Any:
        try:
            return _within(CALL_SECONDS, action)
        except Exception as error:
            _warn(f"{_first_line(error)}; going on without it")
            self._run = None
            _give_up_service()
        return None


def _start(logger: LoggerConfig, arguments: dict[str, Any]) -> Any:
    """Return a started run, online if so wanted and possible, else in the local directory."""
    global _online_failed
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    os.environ.setdefault("WANDB_SILENT", "true")
    Path(logger.directory).mkdir(parents=True, exist_ok=True)
    if logger.mode == "online" and not _online_failed:
        try:
            _require_login()
            return _init(logger, "online", arguments)
        except Exception as error:
            _online_failed = True
            _warn(
                f"offline: {_first_line(error)}; logging to {Path(logger.directory) / 'wandb'} "
                "instead, `wandb sync` sends it later"
            )
    return _init(logger, "offline", arguments)


def _require_login() -> None:
    """Raise unless W&B has a key that its server accepts; never ask for one."""
    import wandb

    if not wandb.login(prompt=False):
        raise RuntimeError("no API key; `wandb login` or WANDB_API_KEY gives one")


def _init(
    logger: LoggerConfig, mode: Literal["online", "offline"], arguments: dict[str, Any]
) -> Any:
    import wandb

    settings = wandb.Settings(
        console="off",
        silent=True,
        init_timeout=INIT_SECONDS,
        finish_timeout=UPLOAD_SECONDS,
        x_disable_stats=True,
    )
    return wandb.init(
        project=logger.project,
        entity=logger.entity,
        mode=mode,
        dir=logger.directory,
        reinit="finish_previous",
        resume="allow" if mode == "online" and "id" in arguments else None,
        settings=settings,
        **arguments,
    )


def _within(seconds: float, action: Callable[[], Any]) -> Any:
    """Return what ``action`` returns, or raise what it raises; `TimeoutError` when it takes too
    long: it then goes on in a thread that nothing waits for."""
    outcome: list[tuple[Any, BaseException | None]] = []

    def work() -> None:
        try:
            outcome.append((action(), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise TimeoutError(f"no answer within {seconds:g} s")
    value, error = outcome[0]
    if error is not None:
        raise error if isinstance(error, Exception) else RuntimeError(repr(error))
    return value


def _give_up_service() -> None:
    """End W&B's service process, which died or hangs, so that nothing waits for it at exit.

    It is a child of this process; W&B offers no way to end one that does not answer.
    """
    import wandb

    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(["pkill", "-KILL", "-P", str(os.getpid()), "wandb-core"], timeout=10)
    with contextlib.suppress(Exception):  # it says that the service is gone
        _within(CALL_SECONDS, wandb.teardown)


def _warn(text: str) -> None:
    print(f"warning: W&B: {text}", file=sys.stderr, flush=True)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).split("\n")[0]
