"""Run an experiment's grid: what is missing, and only that.

python sweep.py experiment=quick
python sweep.py experiment=figure1 dry_run=true
python sweep.py experiment=figure1 only.task=lis only.model=linear hydra/launcher=slurm
python sweep.py experiment=figure1 strategy=frontier
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hydra
import pandas as pd
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

import cli
from config.compose import CONF_DIR, plain
from config.grid import experiment_from
from errors import RunError, UserError
from sweeps import frontier
from sweeps.frontier import Group
from sweeps.plan import CostEstimate, Planned, Sweep, quoted, training_flops
from sweeps.wandb_mirror import track_figures
from sweeps.watch import Watcher, print_plan, print_summary

MACHINE_SETTINGS = (
    "data_dir",
    "device",
    "compile",
    "micro_batch_size",
    "threads",
    "evaluation_memory_mb",
    "checkpoint_seconds",
    "time_limit_seconds",
)


@hydra.main(version_base="1.3", config_path=str(CONF_DIR), config_name="sweep")
@cli.task_function
def main(call: DictConfig) -> None:
    """Hydra's entry point: plan, launch what is missing, enter, draw, sum up."""
    sweep = sweep_from(call)
    if call.dry_run:
        show_plan(sweep)
        return
    if call.strategy == "frontier":
        found = frontier.search(sweep, lambda chosen: launch(sweep, chosen))
    elif call.strategy == "grid":
        launch(sweep, sweep.to_launch(sweep.plan()))
    else:
        raise UserError(f"strategy={call.strategy}: must be grid or frontier")
    table = sweep.enter()
    if call.plot:
        draw(sweep, table)
    if call.strategy == "frontier":
        sum_up_frontier(sweep, found)
    else:
        sum_up(sweep, table)


def launch(sweep: Sweep, chosen: Sequence[Planned]) -> None:
    """Run the chosen cells by the launcher of the command line, watching them."""
    if chosen:
        sweep.require_writable()
        total = len(sweep.cells)
        print(f"{sweep.experiment.name}: {len(chosen)} of {total} cells to run", flush=True)
        with Watcher(sweep, chosen):
            sweep.launch(chosen, HydraConfig.get().overrides.hydra)


def sweep_from(call: DictConfig) -> Sweep:
    """Return the sweep that the command line asks for."""
    name = HydraConfig.get().runtime.choices["experiment"]
    settings = plain(call)
    return Sweep(
        experiment_from(str(name), settings["experiment"]),
        results_dir=settings["results_dir"],
        runs_dir=settings["runs_dir"],
        overrides=[*settings["overrides"], *machine_settings(settings)],
        only={key: value for key, value in settings["only"].items() if value is not None},
        retry_failed=settings["retry_failed"],
        remeasure=settings["remeasure"],
    )


def machine_settings(settings: dict[str, Any]) -> list[str]:
    """Return the overrides that hand this machine's settings to every cell."""
    words = [f"logger={HydraConfig.get().runtime.choices['logger']}"]
    words += [f"logger.{key}={quoted(value)}" for key, value in settings["logger"].items()]
    return words + [f"{key}={quoted(settings[key])}" for key in MACHINE_SETTINGS]


def show_plan(sweep: Sweep) -> None:
    """Print the plan with its estimated cost."""
    plan = sweep.plan()
    estimate = CostEstimate(sweep.table())
    seconds = {p.cell.name: estimate.seconds(p.cell) for p in plan}
    flops = {p.cell.name: training_flops(p.cell) for p in plan}
    print_plan(plan, seconds, flops)
    left = [p.cell.name for p in sweep.to_launch(plan)]
    counts = ", ".join(f"{number} {status}" for status, number in sorted(sweep.counts().items()))
    print(
        f"{sweep.experiment.name}: {len(plan)} cells: {counts}; to run: {len(left)}, at most "
        f"{sum(flops[n] for n in left) / 1e15:.3g} PFLOP of training, "
        f"{sum(seconds[n] for n in left) / 3600:.2g} hours on one worker"
    )


def draw(sweep: Sweep, table: pd.DataFrame) -> None:
    """Redraw the experiment's figures and send them to a W&B run of their own."""
    from plots.__main__ import redraw

    paths = redraw(sweep.experiment.name, sweep.results_dir)
    for path in paths:
        print(f"wrote {path}")
    experiment = sweep.experiment
    logger = sweep.cells[0].config.logger
    track_figures(logger, experiment.name, experiment.command, [Path(p) for p in paths], table)


def sum_up(sweep: Sweep, table: pd.DataFrame) -> None:
    """Print the summary; `RunError` when a cell failed, so that the exit status says so."""
    plan = sweep.plan()
    records = {str(row["cell"]): row for _, row in table.iterrows()}
    print_summary(plan, records)
    missing = [p for p in plan if p.status != "done"]
    elsewhere = sum(p.status in ("running", "queued") for p in plan)
    print(f"results: {sweep.results_dir / sweep.experiment.name / 'results.csv'}")
    failed = sum(p.status == "failed" for p in plan)
    if missing:
        raise RunError(
            f"{len(missing)} of {len(plan)} cells are not done, {failed} of them failed "
            f"(retry_failed=true tries these again), {elsewhere} running or queued elsewhere"
        )


def sum_up_frontier(sweep: Sweep, found: Sequence[Group]) -> None:
    """Print and write what was measured and inferred; `RunError` when a group is not solved."""
    path = sweep.results_dir / sweep.experiment.name / "frontier.csv"
    frontier.write_frontier(found, path)
    frontier.print_frontier(found)
    print(f"results: {path}")
    left = sum(not group.solved for group in found)
    if left:
        raise RunError(f"the least D of {left} of {len(found)} groups is not found yet")


if __name__ == "__main__":
    cli.main(main)
