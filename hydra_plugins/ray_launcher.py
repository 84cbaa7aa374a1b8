"""Hydra launcher ``ray``: every job a Ray task, on this machine or on a Ray cluster.

It takes the same ``ray.init`` and ``ray.remote`` settings as ``hydra-ray-launcher`` and replaces
it: that one ends the sweep with the first worker that is lost for good, and cannot be installed
beside the joblib of today (it wants cloudpickle < 3).
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from hydra.core.utils import JobReturn, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from common import RunError
from sweeps.workers import WorkerDiedError, failed, job_payload, perform, python_path, tell_failures


class RayLauncher(Launcher):
    """Runs jobs as Ray tasks; ``ray`` holds ``init`` and ``remote``, arguments of these two.

    A task whose worker dies is tried again, three times unless ``remote.max_retries`` says
    otherwise; its cell goes on from its checkpoint.
    """

    def __init__(self, ray: Mapping[str, Any] | None = None) -> None:
        given = OmegaConf.to_container(ray, resolve=True) if OmegaConf.is_config(ray) else ray
        self.settings: dict[str, Any] = dict(given or {})  # type: ignore[arg-type]
        self.config: DictConfig
        self.task_function: TaskFunction
        self.hydra_context: HydraContext

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Take what every job needs."""
        self.config = config
        self.hydra_context = hydra_context
        self.task_function = task_function

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Run every list of overrides as a task; return how each ended, in order."""
        setup_globals()
        ray = _start(dict(self.settings.get("init") or {}))
        options = {"max_retries": 3, **(self.settings.get("remote") or {})}
        task = ray.remote(**options)(_perform)
        indices = {
            task.remote(job_payload(self, overrides, initial_job_idx + index)): index
            for index, overrides in enumerate(job_overrides)
        }
        results: dict[int, JobReturn] = {}
        pending = list(indices)
        while pending:
            ready, pending = ray.wait(pending)
            for reference in ready:
                index = indices[reference]
                results[index] = _outcome(ray, reference, job_overrides[index])
        ended = [results[index] for index in range(len(job_overrides))]
        tell_failures(ended)
        return ended


def _perform(payload: bytes) -> bytes:
    return perform(payload)


def _start(init: dict[str, Any]) -> Any:
    """Start Ray here, or join the cluster that ``init.address`` names; return the module."""
    try:
        import ray
    except ImportError:
        raise RunError(
            "hydra/launcher=ray: Ray is not installed; pip install 'ray>=2.55'"
        ) from None
    os.environ.setdefault("RAY_task_oom_retries", "2")  # its default is to try for ever
    if "address" not in init:
        init = {"num_cpus": len(os.sched_getaffinity(0)), "include_dashboard": False, **init}
    environment = init.setdefault("runtime_env", {}).setdefault("env_vars", {})
    environment.setdefault("PYTHONPATH", python_path())
    if not ray.is_initialized():
        ray.init(**{"logging_level": "warning", "log_to_driver": False, **init})
    return ray


def _outcome(ray: Any, reference: Any, overrides: Sequence[str]) -> JobReturn:
    try:
        return pickle.loads(ray.get(reference))
    except ray.exceptions.RayError as error:
        reason = " ".join(str(error).split())[:200]
        if isinstance(error, ray.exceptions.OutOfMemoryError):
            reason = "out of memory"
        failure = WorkerDiedError(f"Ray: {type(error).__name__}: {reason}")
    print(f"error: {failure}", file=sys.stderr)
    return failed(overrides, failure)
