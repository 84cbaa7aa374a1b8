"""``python -m plots experiment=NAME``: redraw every figure and table from the results table."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import pandas as pd
from tqdm import tqdm

import cli
from config.compose import CONF_DIR
from config.grid import Experiment, load_experiment, planned
from config.schema import require_plain_name
from errors import UserError
from plots import FIGURES, report
from plots.cells import plan_from_table
from records.reading import read

USAGE = """usage: python -m plots experiment=NAME [results_dir=results] [figures=[heatmap,...]]

Redraws the figures and tables of an experiment from results_dir/NAME/results.csv into
results_dir/NAME/figures, and results_dir/NAME/report.html beside it. Prints each file it writes.
figures: {names}, report,
or the dotted path of your own module; default: those that the experiment names, else all.
"""


@dataclass
class AdHoc:
    """Stands for an experiment that has a results table but no YAML: the table is its plan."""

    name: str
    description: str = "a results table without conf/experiment file; the table is its own plan"
    command: str = ""
    budget: str = ""
    figures: list[str] = field(default_factory=list)


def redraw(
    name: str, results_dir: str | Path = "results", figures: Sequence[str] | None = None
) -> list[Path]:
    """Draw ``figures`` (default: the experiment's, or all, and the report); return the files.

    Raises `UserError` for an unknown experiment or figure and for a missing or damaged table.
    """
    require_plain_name("experiment", name)
    folder = Path(results_dir) / name
    modules = {figure: _module(figure) for figure in figures or ()}
    experiment = _experiment(name, folder / "results.csv")
    results = read(folder / "results.csv")
    plan = _plan(experiment, results)
    modules = modules or {figure: _module(figure) for figure in experiment.figures or FIGURES}
    wants_report = not figures or "report" in modules
    modules.pop("report", None)
    written: list[Path] = []
    for figure in tqdm(modules, desc="figures", unit="figure", disable=None, leave=False):
        written += modules[figure].draw(results, plan, experiment, folder / "figures")
    if wants_report:
        written += report.write(results, plan, experiment, folder / "figures", written)
    return written


def _module(figure: str) -> ModuleType:
    path = figure if "." in figure else f"plots.{figure}"
    if "." in figure or figure in (*FIGURES, "report"):
        try:
            module = importlib.import_module(path)
        except ModuleNotFoundError as error:
            raise UserError(f"figures: {figure}: {error}") from None
        if hasattr(module, "draw"):
            return module
        raise UserError(f"figures: {path} has no function draw(table, plan, experiment, out)")
    raise UserError(f"figures: unknown figure {figure}; there are {', '.join(FIGURES)}, report")


def _experiment(name: str, path: Path) -> Experiment | AdHoc:
    """Return the experiment; a stand-in for a table without YAML."""
    try:
        experiment = load_experiment(name)
    except UserError:
        if not path.exists() or _has_yaml(name):
            raise
        return AdHoc(name)
    if not path.exists():
        raise UserError(f"{path}: no such results table; run `{experiment.command}` first")
    return experiment


def _plan(experiment: Experiment | AdHoc, results: pd.DataFrame) -> pd.DataFrame:
    """Return a row per planned cell, with every setting that tells cells of the table apart."""
    if isinstance(experiment, AdHoc):
        return plan_from_table(results)
    return planned(experiment, also=[name for name in map(str, results) if "." in name])


def _has_yaml(name: str) -> bool:
    return (Path(CONF_DIR) / "experiment" / f"{name}.yaml").exists()


def _arguments(words: Sequence[str]) -> tuple[str, str, list[str] | None]:
    values = {"experiment": "", "results_dir": "results", "figures": ""}
    for word in words:
        key, separator, value = word.partition("=")
        if not separator or key not in values:
            raise UserError(f"{word}: unknown argument; {USAGE.splitlines()[0]}")
        values[key] = value
    if not values["experiment"]:
        raise UserError(f"experiment=NAME is missing; {USAGE.splitlines()[0]}")
    names = [part.strip() for part in values["figures"].strip("[]").split(",")]
    return values["experiment"], values["results_dir"], [n for n in names if n] or None


def main() -> None:
    """Entry point: draw, print each file written."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(USAGE.format(names=", ".join(FIGURES)), end="")
        return
    for path in redraw(*_arguments(sys.argv[1:])):
        print(path)


if __name__ == "__main__":
    cli.main(main)
