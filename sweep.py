"""Run an experiment's grid: what is missing, and only that.

python sweep.py experiment=quick
python sweep.py experiment=figure1 dry_run=true
python sweep.py experiment=figure1 only.task=lis only.model=linear hydra/launcher=slurm
python sweep.py experiment=quick status=true                     # from another terminal
"""

from __future__ import annotations

if __name__ == "__main__":
    import quiet_interrupts  # noqa: F401

import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import hydra
import pandas as pd
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

import cli
from common import RunError, UserError
from config.calls import SweepCall, checked
from config.compose import CONF_DIR, plain
from config.grid import experiment_from, planned
from plots import budgets
from plots.cells import gather
from plots.redraw import figure_module, redraw
from sweeps import frontier, search_cost
from sweeps.cost import estimate_of, of_weights, training_flops
from sweeps.launch import launch as launch_cells
from sweeps.launch import make_launcher
from sweeps.least_dim import Group
from sweeps.plan import Planned, Sweep, counts, quoted
from sweeps.ready import require_buildable, require_data, require_machine
from sweeps.status import show_status, watch
from sweeps.tables import duration, print_plan, print_summary, rounded
from sweeps.wandb_mirror import track_figures
from sweeps.watch import Watcher


@hydra.main(version_base="1.3", config_path=str(CONF_DIR), config_name="sweep")
@cli.task_function
def main(config: DictConfig) -> None:
    """Hydra's entry point: plan, launch what is missing, enter, draw, sum up."""
    call = checked(SweepCall, plain(config))
    sweep = sweep_from(call)
    require_ready(sweep)
    trials = frontier.candidates(sweep) if call.strategy == "frontier" else None
    if call.watch:
        watch(sweep)
    elif call.status:
        show_status(sweep, trials)
    elif call.dry_run:
        show_plan(sweep, trials)
    elif call.strategy == "frontier":
        run_frontier(sweep, call)
    else:
        run_grid(sweep, call)


def run_grid(sweep: Sweep, call: SweepCall) -> None:
    """Fill the grid; a table that contradicts the records is refused before anything starts."""
    sweep.enter()
    launch(sweep, sweep.to_launch(sweep.plan()), call.max_hours)
    table = sweep.enter()
    if call.plot:
        draw(sweep, table)
    sum_up(sweep, table)


def run_frontier(sweep: Sweep, call: SweepCall) -> None:
    """Search the least D that reaches 90 % in every group of cells that differ in D alone.

    The search launches several times; ``max_hours`` are those of all launches together.
    """
    started = time.monotonic()

    def measure(chosen: Sequence[Planned]) -> None:
        left = call.max_hours
        if left is not None:
            left = max(0.0, left - (time.monotonic() - started) / 3600)
        launch(sweep, chosen, left)

    found = frontier.search(sweep, measure)
    table = sweep.enter()
    if call.plot:
        draw(sweep, table)
    sum_up_frontier(sweep, found)


def launch(sweep: Sweep, chosen: Sequence[Planned], max_hours: float | None) -> None:
    """Run the chosen cells by the launcher of the command line, watching them."""
    launcher = make_launcher(HydraConfig.get().overrides.hydra)
    if not chosen:
        return
    require_data(planned.cell for planned in chosen)
    sweep.require_writable()
    if max_hours is not None:
        if not hasattr(launcher, "stop_after"):
            raise UserError("max_hours: only with hydra/launcher=local; a cluster has limits")
        launcher.stop_after(3600 * max_hours)
    print(f"{sweep.experiment.name}: {len(chosen)} of {len(sweep.cells)} cells to run", flush=True)
    with Watcher(sweep, chosen):
        launch_cells(launcher, chosen)


def sweep_from(call: SweepCall) -> Sweep:
    """Return the sweep that the command line asks for."""
    name = str(HydraConfig.get().runtime.choices["experiment"])
    return Sweep(
        experiment_from(name, call.experiment),
        results_dir=call.results_dir,
        runs_dir=call.runs_dir,
        overrides=[*call.overrides, *machine_settings(call)],
        only={key: value for key, value in call.only.items() if value is not None},
        retry_failed=call.retry_failed,
        remeasure=call.remeasure,
    )


def require_ready(sweep: Sweep) -> None:
    """Raise now what would end the sweep, or every cell of it, later.

    Other launchers start cells on other machines, of which nothing is known here.
    """
    for figure in sweep.experiment.figures:
        figure_module(figure)
    if HydraConfig.get().runtime.choices["hydra/launcher"] == "local":
        require_machine(sweep.cells[0].config)
    require_buildable(sweep.cells)


def machine_settings(call: SweepCall) -> list[str]:
    """Return the overrides that hand this machine's settings to every cell."""
    words = [f"logger={HydraConfig.get().runtime.choices['logger']}"]
    words += [f"logger.{key}={quoted(value)}" for key, value in vars(call.logger).items()]
    words += [f"{key}={quoted(value)}" for key, value in vars(call.machine).items()]
    return [*words, f"data_dir={quoted(call.data_dir)}"]


def show_plan(sweep: Sweep, trials: Sequence[Sequence[frontier.Trials]] | None) -> None:
    """Print the plan with its estimated cost; of a frontier search, what it needs of that."""
    plan = sweep.plan()
    estimate = estimate_of(sweep)
    print_plan(plan, estimate)
    left = [planned.cell for planned in sweep.to_launch(plan)]
    trained = of_weights(left)
    flops, seconds = sum(map(training_flops, trained)), sum(map(estimate.seconds, trained))
    print(
        f"{sweep.experiment.name}: {len(plan)} cells: {counts(plan)}; to run: {len(left)}, at most "
        f"{rounded(flops / 1e15)} PFLOP of training, {duration(seconds)} on one worker "
        f"({estimate.source})"
    )
    if trials is not None:
        print(search_cost.in_words(frontier.standing(sweep, trials, sweep.table()), estimate))


def draw(sweep: Sweep, table: pd.DataFrame) -> None:
    """Redraw the experiment's figures and send them to a W&B run of their own."""
    paths = [Path(path) for path in redraw(sweep.experiment.name, sweep.results_dir)]
    for path in paths:
        print(f"wrote {path}")
    logger = sweep.cells[0].config.logger
    track_figures(logger, sweep.experiment.name, sweep.experiment.command, paths, table)


def sum_up(sweep: Sweep, table: pd.DataFrame) -> None:
    """Print the summary; `RunError` when a cell failed, so that the exit status says so."""
    plan = sweep.plan()
    for told in sweep.not_taken(table) if sweep.remeasure else ():
        print(f"warning: {told}", file=sys.stderr)
    print_summary(plan, {str(row["cell"]): row for _, row in table.iterrows()})
    print_budgets(sweep, table)
    missing = [planned for planned in plan if planned.status != "done"]
    print(f"results: {sweep.results_dir / sweep.experiment.name / 'results.csv'}")
    if missing:
        raise RunError(f"{len(missing)} of {len(plan)} cells are not done{what_is_left(plan)}")


def what_is_left(plan: Sequence[Planned]) -> str:
    """Return what becomes of the cells that are not done."""
    counted = Counter(planned.status for planned in plan)
    failed, elsewhere = counted["failed"], counted["running"] + counted["queued"]
    others = len(plan) - counted["done"] - failed - elsewhere
    told = [f"{failed} failed (retry_failed=true tries these again)"] if failed else []
    told += [f"{elsewhere} running or queued elsewhere"] if elsewhere else []
    told += [f"the same command continues with {others}"] if others else []
    return "".join(f"; {part}" for part in told)


def print_budgets(sweep: Sweep, table: pd.DataFrame) -> None:
    """Print which least D the training budget limits, and of which that is unknown."""
    if table["status"].eq("done").any():
        also = [str(name) for name in table if "." in str(name)]
        grid = gather(table, planned(sweep.experiment, also=also))
        folder = sweep.results_dir / sweep.experiment.name
        for sentence in budgets.sentences(budgets.of_grid(grid, folder)):
            print(sentence)


def sum_up_frontier(sweep: Sweep, found: Sequence[Group]) -> None:
    """Print and write what was measured and inferred; `RunError` when a group is not solved."""
    path = sweep.results_dir / sweep.experiment.name / "frontier.csv"
    frontier.write_frontier(found, path)
    frontier.print_frontier(found)
    print_budgets(sweep, sweep.table())
    print(f"results: {path}")
    left = sum(not group.solved for group in found)
    if left:
        raise RunError(f"the least D of {left} of {len(found)} groups is not found yet")


if __name__ == "__main__":
    cli.main(main)
