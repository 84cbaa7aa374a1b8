"""``python -m records experiment=NAME``: rebuild a results table from what runs/ holds."""

from __future__ import annotations

if __name__ == "__main__":
    import quiet_interrupts  # noqa: F401

import sys
from collections.abc import Sequence

import cli
from common import UserError
from config.compose import configurations_of
from config.grid import cells, load_experiment
from config.schema import require_plain_name
from records.rebuild import rebuild

USAGE = """usage: python -m records experiment=NAME [results_dir=results] [runs_dir=runs]
                         [--config-dir=DIR]

Writes results_dir/NAME/results.csv anew from the records of its cells in runs_dir. Rows that were
measured elsewhere stay where they are sound; cells of its grid that are done in another table in
results_dir, and not here, come from there; what is left out is told. The old table is kept in
results_dir/NAME/.before.
"""


def _arguments(words: Sequence[str]) -> dict[str, str]:
    defaults = {"experiment": "", "results_dir": "results", "runs_dir": "runs", "--config-dir": ""}
    values = cli.key_values(words, defaults, USAGE)
    if not values["experiment"]:
        raise UserError(f"experiment=NAME is missing; {USAGE.splitlines()[0]}")
    require_plain_name("experiment", values["experiment"])
    return values


def _cells_of(experiment: str) -> list[str]:
    """Return the cells of the experiment's grid; none where no file describes it."""
    try:
        return [cell.name for cell in cells(load_experiment(experiment))]
    except UserError:
        return []


def main() -> None:
    """Entry point: rebuild, say what became of the rows."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(USAGE, end="")
        return
    given = _arguments(sys.argv[1:])
    with configurations_of(given["--config-dir"] or None):
        also = _cells_of(given["experiment"])
    found = rebuild(given["results_dir"], given["runs_dir"], given["experiment"], also)
    for told in found.left_out:
        print(f"left out: {told}")
    place = f"{given['results_dir']}/{given['experiment']}/results.csv"
    rows = f"{found.from_runs} rows from {given['runs_dir']}, {found.kept} kept"
    print(f"{place}: {rows}, {found.from_tables} from other tables")


if __name__ == "__main__":
    cli.main(main)
