"""``python -m records.core_hours``: what the tables in results/ have cost."""

from __future__ import annotations

if __name__ == "__main__":
    import quiet_interrupts  # noqa: F401

import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table

import cli
from errors import UserError, did_you_mean
from records.table import read_table

USAGE = """usage: python -m records.core_hours [results_dir=results] [experiment=NAME]

Prints a Markdown table: the cells of each results table, how many of them another table has too,
and the hours that training and measuring took. A training is counted once however often it is
measured; in the last line, so is a cell that stands in several tables.
"""
DEVICE = "cpu: "  # in front of the processor's name
WIDTH = 200
HEADER = """
experiment,cells,done,also elsewhere,training h,measuring h,together h,devices
""".strip().split(",")


def seconds_of(cells: pd.DataFrame) -> tuple[float, float]:
    """Return the seconds of training and of measuring behind the rows of a results table.

    Rows of one training (``weights``) repeat its ``train_seconds``, unless their measurement has
    not ended; those count once.  They are seconds of cores on a CPU and of the clock on a GPU.
    """
    training = cells["weights"].fillna(cells["cell"])  # a row without is of an older version
    trained = cells["train_seconds"].astype(float).groupby(training).max()
    return float(trained.sum()), float(cells["eval_seconds"].astype(float).sum())


def read_tables(results_dir: Path) -> dict[str, pd.DataFrame]:
    """Return the results tables under ``results_dir`` by experiment.

    Raises `UserError` where there is none, or one is damaged.
    """
    paths = sorted(results_dir.glob("*/results.csv"))
    if not paths:
        raise UserError(
            f"{results_dir}: no */results.csv; python sweep.py experiment=NAME makes one"
        )
    return {path.parent.name: read_table(path) for path in paths}


def summary(tables: dict[str, pd.DataFrame]) -> list[list[str]]:
    """Return a row per experiment, as `HEADER` has it; the last is of all cells, each once."""
    rows = []
    for name, table in tables.items():
        others = {cell for other in tables if other != name for cell in tables[other]["cell"]}
        rows.append([name, *_numbers(table, str(table["cell"].isin(others).sum()))])
    every = pd.concat(tables.values(), ignore_index=True).sort_values("finished_at")
    return [*rows, ["each cell once", *_numbers(every.drop_duplicates("cell", keep="last"), "")]]


def _numbers(table: pd.DataFrame, elsewhere: str) -> list[str]:
    training, measuring = seconds_of(table)
    hours = [f"{seconds / 3600:.2f}" for seconds in (training, measuring, training + measuring)]
    devices = ", ".join(sorted({str(d).removeprefix(DEVICE) for d in table["device"].dropna()}))
    return [str(len(table)), str((table["status"] == "done").sum()), elsewhere, *hours, devices]


def print_markdown(rows: Sequence[Sequence[str]]) -> None:
    """Print ``rows`` under `HEADER` as a Markdown table."""
    table = Table(*HEADER, box=box.MARKDOWN)
    for row in rows:
        table.add_row(*row)
    console = Console(width=WIDTH, markup=False, emoji=False)
    with console.capture() as text:  # whose first and last lines are blank
        console.print(table)
    print(text.get().strip())


def main() -> None:
    """Entry point: print the table."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(USAGE, end="")
        return
    given = cli.key_values(sys.argv[1:], {"results_dir": "results", "experiment": ""}, USAGE)
    rows, name = summary(read_tables(Path(given["results_dir"]))), given["experiment"]
    chosen = [row for row in rows if name in ("", row[0])]
    if not chosen:
        known = [row[0] for row in rows[:-1]]
        meant = did_you_mean(name, known)
        raise UserError(f"experiment={name}: no table; there are {', '.join(known)}{meant}")
    print_markdown(chosen)


if __name__ == "__main__":
    cli.main(main)
