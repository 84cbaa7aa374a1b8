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
from common import UserError, did_you_mean
from records.table import read_table, training_devices

USAGE = """usage: python -m records.core_hours [results_dir=results] [experiment=NAME]

Prints a Markdown table: the cells of each results table, how many of them another table has too,
and the hours of CPU cores that training and measuring took; then, for cells on a GPU, those of
each cell's clock: cells side by side count each.
A training is counted once however often it is measured; in the last line, so is a cell that
stands in several tables.
"""
DEVICE = "cpu: "  # in front of the processor's name
WIDTH = 200
HEADER = """
experiment,cells,done,also elsewhere,training h,measuring h,together h,GPU h,devices
""".strip().split(",")


def seconds_of(cells: pd.DataFrame, gpu: bool = False) -> tuple[float, float]:
    """Return the seconds of training and of measuring behind the rows of a results table.

    They are those of CPU cores or, with ``gpu``, those of each cell's clock on a GPU, side by side
    or not; a training that moved from one to the other counts as a GPU's.  Rows of one training
    (``weights``) repeat its ``train_seconds``, unless their measurement has not ended; those count
    once.
    """
    training = cells["weights"].fillna(cells["cell"])  # a row without is of an older version
    trained_on_gpu = _on_gpu(training_devices(cells)).groupby(training).transform("max")
    trained = cells["train_seconds"].astype(float).where(trained_on_gpu == gpu)
    measured = cells["eval_seconds"].astype(float).where(_on_gpu(cells["device"]) == gpu)
    return float(trained.groupby(training).max().sum()), float(measured.sum())


def _on_gpu(devices: pd.Series) -> pd.Series:
    return devices.astype(object).fillna("").astype(str).str.contains("cuda:")


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
    on_gpu = sum(seconds_of(table, gpu=True))
    hours = [training, measuring, training + measuring, on_gpu]
    told = [f"{seconds / 3600:.2f}" for seconds in hours]
    named = {*table["device"].dropna(), *training_devices(table).dropna()}
    devices = ", ".join(sorted({str(name).removeprefix(DEVICE) for name in named}))
    done = str((table["status"] == "done").sum())
    return [str(len(table)), done, elsewhere, *told, devices]


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
