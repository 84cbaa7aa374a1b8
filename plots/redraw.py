"""Redrawing an experiment's figures, tables and report from its results table."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import pandas as pd
from tqdm import tqdm

from common import UserError, did_you_mean, remove_stale
from config.compose import config_folders, configurations_of
from config.grid import Experiment, load_experiment, planned
from config.schema import require_plain_name
from plots import FIGURES, SPECIAL, datapackage, report
from plots.aligned import plan_from_table
from records.reading import lost_attachments, read, require_attachments


@dataclass
class AdHoc:
    """Stands for an experiment that has a results table but no YAML: the table is its plan."""

    name: str
    description: str = "a results table without conf/experiment file; the table is its own plan"
    command: str = ""
    budget: str = ""
    figures: list[str] = field(default_factory=list)


def redraw(
    name: str,
    results_dir: str | Path = "results",
    figures: Sequence[str] | None = None,
    config_dir: str | None = None,
) -> list[Path]:
    """Draw ``figures`` (default: the experiment's, or `FIGURES`, and the report); return them.

    ``config_dir`` is a folder of configurations outside the repository.  Raises `UserError` for an
    unknown experiment or figure and for a missing or damaged table.
    """
    with configurations_of(config_dir):
        return _redraw(name, results_dir, figures)


def _redraw(name: str, results_dir: str | Path, figures: Sequence[str] | None) -> list[Path]:
    folder = Path(results_dir) / name
    modules = {figure: figure_module(figure) for figure in figures or ()}
    experiment, results, plan = measured(name, results_dir)
    warn_of_stand_ins(folder / "results.csv", results, plan)
    warn_of_lost_files(folder, results)
    modules = modules or {figure: figure_module(figure) for figure in experiment.figures or FIGURES}
    wants_report = not figures or "report" in modules
    modules.pop("report", None)
    remove_stale(folder / "figures")
    written: list[Path] = []
    for figure in tqdm(modules, desc="figures", unit="figure", disable=None, leave=False):
        written += modules[figure].draw(results, plan, experiment, folder / "figures")
    note_outdated(folder / "figures", modules, written)
    if wants_report:
        written += report.write(results, plan, experiment, folder / "figures", written)
        written.append(datapackage.write(results, experiment, folder))
    return written


def measured(
    name: str, results_dir: str | Path
) -> tuple[Experiment | AdHoc, pd.DataFrame, pd.DataFrame]:
    """Return the experiment ``name``, its results table, and its plan, a row per planned cell."""
    require_plain_name("experiment", name)
    folder = Path(results_dir) / name
    experiment = _experiment(name, folder / "results.csv")
    results = read(folder / "results.csv")
    require_attachments(folder, results)
    return experiment, results, _plan(experiment, results)


def warn_of_lost_files(folder: Path, results: pd.DataFrame) -> None:
    """Say how many files that its rows name are no longer beside the table, and what lacks them."""
    counted = {kind: len(lost) for kind, lost in lost_attachments(folder, results).items() if lost}
    if counted:
        told = ", ".join(f"{count} of {kind}/" for kind, count in counted.items())
        print(
            f"warning: {folder}: {told} are not beside the table: what the budget limits is then "
            "unknown, and learning curves and kinds of error are left out",
            file=sys.stderr,
        )


def note_outdated(folder: Path, drawn: Collection[str], written: Sequence[Path]) -> None:
    """Name the files of the figures ``drawn`` that an earlier drawing left and this one did not."""
    current = {path.name for path in written}
    outdated = sorted(
        path.name
        for path in folder.glob("*.*")
        if path.name not in current and _figure_of(path.stem) in drawn
    )
    if outdated:
        print(
            f"note: {folder}: {', '.join(outdated)}: left from an earlier drawing, not redrawn; "
            "delete what nobody needs",
            file=sys.stderr,
        )


def _figure_of(stem: str) -> str:
    """Return the figure that a file belongs to by its name, ``""`` where to none."""
    owners = [name for name in (*FIGURES, *SPECIAL) if f"{stem}_".startswith(f"{name}_")]
    return max(owners, key=len, default="")


def warn_of_stand_ins(path: Path, results: pd.DataFrame, plan: pd.DataFrame) -> None:
    """Say which rows stand where the plan has another cell: its experiment was changed since."""
    shared = [name for name in plan if name in results and name != "cell"]
    lacking, others = (
        frame.loc[~frame["cell"].isin(known["cell"]), shared]
        for frame, known in ((plan, results), (results, plan))
    )
    wanted = {tuple(map(_plain, row)) for row in lacking.to_numpy(dtype=object)}
    found = sum(tuple(map(_plain, row)) in wanted for row in others.to_numpy(dtype=object))
    if found:
        print(
            f"warning: {path}: {found} rows have other settings than the experiment has now, and "
            "are drawn in its cells' place; sweep.py measures these",
            file=sys.stderr,
        )


def _plain(value: object) -> object:
    """Return a setting as it compares whether a table or a configuration holds it."""
    if value is None or value != value:
        return ""
    try:
        return float(str(value))
    except ValueError:
        return str(value)


def figure_module(figure: str) -> ModuleType:
    """Return the module of a figure, ours or a dotted path; `UserError` when there is none."""
    path = figure if "." in figure else f"plots.{figure}"
    known = (*FIGURES, *SPECIAL, "report")
    if "." in figure or figure in known:
        try:
            module = importlib.import_module(path)
        except ModuleNotFoundError as error:
            raise UserError(f"figures: {figure}: {error}") from None
        if hasattr(module, "draw"):
            return module
        raise UserError(f"figures: {path} has no function draw(table, plan, experiment, out)")
    raise UserError(
        f"figures: unknown figure {figure}; there are {', '.join(known)}"
        f"{did_you_mean(figure, known)}"
    )


def _experiment(name: str, path: Path) -> Experiment | AdHoc:
    """Return the experiment; a stand-in for a table without YAML."""
    try:
        experiment = load_experiment(name)
    except UserError:
        known = [folder / f"{name}.yaml" for folder in config_folders("experiment")]
        if not path.exists() or any(file.exists() for file in known):
            raise
        print(
            f"note: no configuration of {name} here, so the usual figures are drawn; "
            f"--config-dir=FOLDER names the folder that holds experiment/{name}.yaml",
            file=sys.stderr,
        )
        return AdHoc(name)
    if not path.exists():
        raise UserError(f"{path}: no such results table; run `{experiment.command}` first")
    return experiment


def _plan(experiment: Experiment | AdHoc, results: pd.DataFrame) -> pd.DataFrame:
    """Return a row per planned cell, with every setting that tells cells of the table apart."""
    if isinstance(experiment, AdHoc):
        return plan_from_table(results)
    return planned(experiment, also=[name for name in map(str, results) if "." in name])
