"""What every launcher shares: running one job in a worker, and the words for how workers end."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Sequence
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, run_job, setup_globals
from omegaconf import open_dict

from common import RunError, UserError
from hydra_words import one_line
from records.provenance import ROOT
from torchrun import refuse_torchrun

LONGEST_TEXT = 2000  # characters of why a job failed; a record keeps 300


class WorkerDiedError(RunError):
    """A job's process ended without a word; the cell counts as failed."""


class WorkerStoppedError(RunError):
    """A job was ended from outside (cancelled, out of time); the cell counts as unfinished."""


class NeverStartedError(RunError):
    """A job's turn did not come before the sweep's time was over; nothing is recorded."""


def job_payload(
    launcher: Any, overrides: Sequence[str], number: int, job_id: str | None = None
) -> bytes:
    """Return everything a worker needs for one job of ``launcher``, pickled."""
    refuse_torchrun()
    return cloudpickle.dumps(
        (
            launcher.hydra_context,
            launcher.task_function,
            launcher.config,
            list(overrides),
            number,
            job_id or str(number),
            Singleton.get_state(),
        )
    )


def perform(payload: bytes) -> bytes:
    """Run the job that `job_payload` packed, in this process; return its pickled `JobReturn`."""
    os.environ["COTCOST_WORKER"] = "1"  # several at once: no progress bar of its own
    context, task_function, config, overrides, number, job_id, state = pickle.loads(payload)
    setup_globals()
    Singleton.set_state(state)
    job_config = context.config_loader.load_sweep_config(config, overrides)
    with open_dict(job_config):
        job_config.hydra.job.id = job_id
        job_config.hydra.job.num = number
    HydraConfig.instance().set_config(job_config)
    result = run_job(
        hydra_context=context,
        task_function=task_function,
        config=job_config,
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
        configure_logging=False,
    )
    return packed(result)


def packed(result: JobReturn) -> bytes:
    """Return the result pickled, without its configurations and with a failure's text cut.

    A failure that cannot be unpickled, such as of a class whose ``__init__`` takes other arguments
    than it hands on, becomes a `RunError`.
    """
    result.cfg = result.hydra_cfg = None
    failure = result._return_value
    if isinstance(failure, BaseException):
        long = len(str(failure)) > LONGEST_TEXT
        if long or not _unpickles(failure):
            known = isinstance(failure, UserError | RunError)
            text = str(failure) if known else f"{type(failure).__name__}: {failure}"
            text = text[:LONGEST_TEXT] + " ..." * long
            result.return_value = (type(failure) if known else RunError)(text)
    return cloudpickle.dumps(result)


def _unpickles(failure: BaseException) -> bool:
    try:
        pickle.loads(cloudpickle.dumps(failure))
    except Exception:
        return False
    return True


def tell_failures(results: Sequence[JobReturn]) -> None:
    """Print a line for each failed job of ``train.py -m`` but the first, which Hydra raises.

    Of a worker's death its launcher has told, of the jobs of a sweep its watcher does.
    """
    failures = [result for result in results if result.status == JobStatus.FAILED]
    for result in failures[1:]:
        failure, words = result._return_value, list(result.overrides or [])
        if not isinstance(failure, WorkerDiedError) and "under_sweep=true" not in words:
            print(f"error: {' '.join(words)}: {one_line(str(failure))}", file=sys.stderr)


def failed(overrides: Sequence[str], failure: RunError) -> JobReturn:
    """Return the `JobReturn` of a job that could not say itself how it ended."""
    result = JobReturn(overrides=list(overrides), status=JobStatus.FAILED)
    result.return_value = failure
    return result


def python_path() -> str:
    """Return a PYTHONPATH by which a worker anywhere finds this repository's modules and those on
    our own PYTHONPATH."""
    given = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    return os.pathsep.join(dict.fromkeys([str(ROOT), *(os.path.abspath(p) for p in given)]))  # noqa: PTH100
