"""Enter records that came back into results/<experiment>/results.csv, as any others.

    python -m benchmarks.gpu.collect out/1 out/2 --experiments figure1 table2

A cell enters every experiment named (default: the one it was planned for) to whose grid it
belongs; a record whose name is in none of them is refused. Its run goes to runs/, so that sweeps
find it; a finished row is never replaced by an unfinished one.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.parcel import unpack
from benchmarks.gpu.shared import call, print_table
from errors import UserError
from experiments.grid import Cell, cells, load_experiment
from experiments.store import Run, merge


def main(argv: Sequence[str] | None = None) -> None:
    """Enter the records and print how many of each status there are in each experiment."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu.collect",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "folders", type=Path, nargs="+", help="--out folders of benchmarks.gpu.cells"
    )
    parser.add_argument("--experiments", nargs="*", default=[])
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"))
    parser.add_argument("--results-dir", type=Path, default=Path("results"))
    options = parser.parse_args(argv)
    rows = []
    for folder in options.folders:
        content = unpack(folder, options.runs_dir)
        rows += enter(content, options, folder)
    print_table(rows, ["folder", "experiment", "done", "unfinished", "failed"])


def enter(content: dict[str, Any], options: argparse.Namespace, folder: Path) -> list[list[Any]]:
    """Merge one folder's records into the tables of the experiments that they belong to."""
    names = options.experiments or [content["experiment"]]
    grids = {name: grid_of(name, content["overrides"]) for name in names}
    known = {cell for grid in grids.values() for cell in grid}
    strangers = sorted(set(content["cells"]) - known)
    if strangers:
        raise UserError(
            f"{folder}: {', '.join(strangers)} not in the grid of {', '.join(names)} "
            f"with {content['overrides']}; was it planned with another version?"
        )
    rows = []
    for name, grid in grids.items():
        runs = [Run(options.runs_dir, cell) for cell in content["cells"] if cell in grid]
        for run in runs:
            complete(run, grid[run.cell], content)
        merge(options.results_dir, name, runs)
        statuses = [content["cells"][run.cell]["record"]["status"] for run in runs]
        counts = [statuses.count(status) for status in ("done", "unfinished", "failed")]
        rows.append([str(folder), name, *counts])
    return rows


def grid_of(experiment: str, overrides: Sequence[str]) -> dict[str, Cell]:
    """Return the cells of an experiment by name."""
    return {cell.name: cell for cell in cells(load_experiment(experiment), overrides)}


def complete(run: Run, cell: Cell, content: dict[str, Any]) -> None:
    """Give a run its configuration, and its record the commit if the machine knew of none."""
    run.write_config({**dataclasses.asdict(cell.config), "cell": cell.name})
    record = run.record()
    if record is not None and record.get("commit") is None:
        planned = {"commit": content["commit"], "tree_dirty": content["tree_dirty"]}
        run.write_record({**record, **planned})


if __name__ == "__main__":
    call(main)
