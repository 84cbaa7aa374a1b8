"""Run the missing cells of an experiment's grid.

python sweep.py experiment=quick
python sweep.py experiment=suite model=mine              # a model against standard attention
python sweep.py experiment=figure1 dry_run=true
python sweep.py experiment=figure1 only.task=lis only.model=linear max_hours=8
python sweep.py experiment=figure1 status=true           # from another terminal; or watch=true
"""

from __future__ import annotations

import re
import signal
import sys
from typing import TYPE_CHECKING, Any

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from common import (
    CONF_DIR,
    RunError,
    UserError,
    did_you_mean,
    exit_on_user_error,
    plain,
    run_command,
)

if TYPE_CHECKING:
    import pandas as pd

    from experiments.config import SweepCall
    from experiments.grid import Experiment
    from experiments.plan import Sweep


@hydra.main(version_base="1.3", config_path=str(CONF_DIR), config_name="sweep")
@exit_on_user_error
def main(settings: DictConfig) -> None:
    from experiments import display
    from experiments.config import SweepCall, call_from
    from experiments.grid import known_experiments

    # A model's interpolations may need keys that only its cells have.
    given = plain(OmegaConf.masked_copy(settings, [str(key) for key in settings if key != "model"]))
    call: SweepCall = call_from(SweepCall, given)
    if not HydraConfig.get().runtime.choices["experiment"]:
        raise UserError(f"experiment=NAME is missing; known: {', '.join(known_experiments())}")
    sweep = sweep_from(call, given)
    if call.watch or call.status or call.dry_run:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `dry_run=true | head` ends quietly
    if call.watch or call.status:
        display.show_status(sweep, watch=call.watch)
        return
    require_drawable(sweep.experiment)
    if call.dry_run:
        jobs = OmegaConf.select(HydraConfig.get(), "launcher.jobs", default=1)  # a cluster: unknown
        display.print_plan(sweep, jobs)
    else:
        run(sweep, call)


def require_drawable(experiment: Experiment) -> None:
    """Raise UserError for an unknown figure or facet."""
    from experiments.table import COLUMNS
    from plots.data import check_facets
    from plots.redraw import figure_functions

    figure_functions(experiment.figures)
    check_facets(experiment.facets, COLUMNS)


def run(sweep: Sweep, call: SweepCall) -> None:
    """Run the missing cells, draw and summarise."""
    from experiments import display
    from experiments.launch import launch_cells, make_launcher, require_runnable

    todo, refused = len(sweep.open_cells()), []
    more = display.more(sweep) if todo else ""
    print(f"{sweep.experiment.name}: {todo} of {len(sweep.cells)} cells to run{more}", flush=True)
    if todo:
        launcher = make_launcher(HydraConfig.get().overrides.hydra, call.runs_dir, call.max_hours)
        require_runnable(sweep.cells, launcher)
        sweep.folder.mkdir(parents=True, exist_ok=True)  # fails before hours of training
        ahead = [planned.cell for planned in sweep.plan() if planned.status in sweep.to_run]
        with display.sweep_progress(sweep, ahead, None if sweep.frontier else todo):
            refused = launch_cells(launcher, sweep.open_cells)
    plan = sweep.plan()  # cells that another sweep finishes later are not in the figures
    table = sweep.enter_records()
    if call.plot and (table["status"] == "done").any():
        draw(sweep, table, to_wandb=bool(todo))
    left = sweep.wanted(plan)
    failed = [planned for planned in left if planned.status == "failed"]
    label_of = display.labels(sweep.cells)
    for planned in failed:
        print(f"failed: {label_of[planned.cell.name]}: {planned.reason}", file=sys.stderr)
    if left:
        said = f"{len(left)} of {len(sweep.cells)} cells are not done"
        if refused:
            raise UserError(f"{said}; {refused[0]}")
        if failed:
            said += f"; {len(failed)} failed (retry_failed=true runs them again)"
        running = sum(planned.status == "running" for planned in left)
        if running:
            said += f"; {running} running in another process"
        if len(left) > len(failed) + running:
            said += "; rerun the command to continue"
        raise RunError(said)


def sweep_from(call: SweepCall, given: dict[str, Any]) -> Sweep:
    """The sweep that the command line asks for."""
    from experiments.config import MACHINE_KEYS
    from experiments.grid import experiment_from, with_model
    from experiments.plan import Sweep

    choices, local = HydraConfig.get().runtime.choices, []
    for word in HydraConfig.get().overrides.task:
        key = word.lstrip("+").partition("=")[0]
        if key.startswith("model."):
            raise UserError(f"{word}: a sweep takes only model=NAME; settings go into its YAML")
        if key.partition(".")[0] in ("logger", "machine", "data_dir", *MACHINE_KEYS):
            local.append(word)
    experiment = experiment_from(str(choices["experiment"]), given["experiment"])
    return Sweep(
        with_model(experiment, choices["model"]) if choices["model"] else experiment,
        results_dir=call.results_dir,
        runs_dir=call.runs_dir,
        overrides=[*call.overrides, *local],
        only=filters(),
        retry_failed=call.retry_failed,
        frontier=call.strategy == "frontier",
    )


def filters() -> dict[str, Any]:
    """Filters by column, as typed: in Hydra, only.model.position=b replaces only.model=a."""
    from experiments.grid import parsed
    from experiments.table import flat

    words = [word.lstrip("+").partition("=") for word in HydraConfig.get().overrides.task]
    own = {
        key: re.findall(r"\w+", value) if key == "only.cell" else parsed(value)  # ids, not numbers
        for key, _, value in words
        if key.partition(".")[0] == "only"
    }
    return {key.removeprefix("only."): value for key, value in flat(own).items()}


def suggest(key: str) -> str:
    """What to write in place of an unknown key."""
    from experiments.config import MACHINE_KEYS, SweepCall
    from experiments.table import COLUMN_OF

    if key.startswith("only."):
        columns = (*COLUMN_OF.values(), "size", "format", "cell")
        last = key.rpartition(".")[2]
        if key.count(".") > 1 and last not in columns:
            return f"; +{key}=VALUE filters by it"
        return did_you_mean(f"only.{last}", [f"only.{column}" for column in columns])
    if key.startswith("hydra."):
        return ""
    for_all = f"'overrides=[\"{key}=...\"]' changes all cells"
    if "." in key or key in ("data", "measure"):
        return f"; {for_all}"
    if key in (*COLUMN_OF.values(), "size", "format"):
        also = f" {for_all}" if key in ("task", "recipe", "seed") else ""
        return f"; did you mean only.{key}?{also}"
    groups = ("experiment", "model", "logger", "machine")
    return did_you_mean(key, (*groups, *MACHINE_KEYS, *SweepCall.__dataclass_fields__))


def draw(sweep: Sweep, table: pd.DataFrame, to_wandb: bool) -> None:
    """Redraw the experiment's figures, print the result, send the figures to W&B."""
    from experiments.wandb_log import log_figures
    from plots import d90_by_task, data, readme, score, tables
    from plots.redraw import SCORE, redraw

    experiment = sweep.experiment
    try:
        figures = [path for path in redraw(experiment, sweep.folder) if path.suffix == ".png"]
        groups = data.d90_of_groups(table, experiment.facets)
    except UserError as error:  # e.g. no row that the experiment's facets show
        print(f"no figures: {error}", file=sys.stderr)
        return
    if tables.sweeps_dim(table):
        found = d90_by_task.listing(groups).to_string(index=False)
        print(f"\nD90, the smallest D whose median answer accuracy reaches 90 %\n{found}")
    scored = score.scores_of(experiment, table) if SCORE in experiment.figures else None
    if said := readme.finding(experiment.facets, table, scored):
        print(f"\n{said}")
    for path in [*figures[:2], sweep.folder / "README.md"]:
        print(path)
    if to_wandb:
        log_figures(sweep.cells[0].config.logger, experiment.name, figures, table)


if __name__ == "__main__":
    run_command(main, suggest)
