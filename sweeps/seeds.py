"""Several seeds of one cell by one call of ``train.py``."""

from __future__ import annotations

import re
from typing import Any

from hydra.core.hydra_config import HydraConfig

from common import RunError, UserError
from config.build import check_buildable
from config.schema import parse_seeds, validate_cell
from sweeps.launch import failure_of, make_launcher


def with_listed_seeds(arguments: list[str]) -> list[str]:
    """Return the command line with ``seeds=0,1,2`` as a list, which it is unless Hydra sweeps."""
    if {"-m", "--multirun"} & set(arguments):
        return arguments
    return [re.sub(r"^(seeds=)(\d+(?:,\d+)+)$", r"\1[\2]", word) for word in arguments]


def run_seeds(plain: dict[str, Any]) -> None:
    """Run the cell that ``plain`` describes once for each of its ``seeds``.

    Jobs of the chosen launcher, so the cells, records and rows are those of as many calls with
    ``seed=``.  One stacked model for all seeds was slower (docs/measured.md).  Raises `RunError`
    naming each seed that failed, after all have run.
    """
    words = HydraConfig.get().overrides
    seeds = parse_seeds(plain["seeds"])
    if any(word.lstrip("+").startswith("seed=") for word in words.task):
        raise UserError("seed and seeds: give one of them")
    for seed in seeds:
        check_buildable(validate_cell({**plain, "seeds": None, "seed": seed}))
    jobs = [[*words.task, "seeds=null", f"seed={seed}"] for seed in seeds]
    results = make_launcher(list(words.hydra)).launch(jobs, 0)
    failures = {s: f for s, r in zip(seeds, results, strict=True) if (f := failure_of(r))}
    if failures:
        told = "; ".join(f"seed={seed}: {failure}" for seed, failure in failures.items())
        raise RunError(f"{len(failures)} of {len(seeds)} seeds are not done: {told}")
