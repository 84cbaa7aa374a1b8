"""What the tables have cost, counted by hand; and what the findings say it was."""

import re
from pathlib import Path

import pandas as pd
import pytest

from common import UserError
from records import core_hours
from records.table import COLUMNS

RESULTS, COSTS = Path("results"), Path("docs/findings/core_hours.md")


def table(*rows):
    names = ["cell", "weights", "train_seconds", "eval_seconds", "status", "device", "finished_at"]
    return pd.DataFrame([dict(zip(names, row, strict=True)) for row in rows]).reindex(
        columns=COLUMNS
    )


def two_tables():
    """A training measured twice, a cell in both, one that failed, two that name no weights."""
    mine = table(
        ("a", "w", 3600.0, 36.0, "done", "cpu: One", "1"),
        ("b", "w", 3600.0, 36.0, "done", "cpu: One", "2"),
        ("c", "c", 1800.0, 0.0, "done", "cpu: One", "3"),
    )
    other = table(
        ("c", "c", 1800.0, 0.0, "done", "cpu: One", "3"),
        ("d", "d", None, None, "failed", "Two", "4"),
        ("e", None, 360.0, 0.0, "done", "Two", "5"),
        ("f", None, 360.0, 0.0, "done", "Two", "6"),
    )
    return {"mine": mine, "other": other}


def test_a_training_counts_once_and_in_the_end_so_does_a_cell():
    assert core_hours.summary(two_tables()) == [
        ["mine", "3", "3", "1", "1.50", "0.02", "1.52", "0.00", "One"],
        ["other", "4", "3", "1", "0.70", "0.00", "0.70", "0.00", "One, Two"],
        ["each cell once", "6", "5", "", "1.70", "0.02", "1.72", "0.00", "One, Two"],
    ]


@pytest.mark.parametrize("status", ["failed", "unfinished"])
def test_a_training_counts_whose_first_measurement_has_not_ended(status):
    first = ("a", "w", None, None, status, "One", "1")
    second = ("b", "w", 3600.0, 36.0, "done", "One", "2")
    for rows in ((first, second), (second, first)):
        assert core_hours.seconds_of(table(*rows)) == (3600.0, 36.0)


def test_seconds_of_a_gpu_are_no_seconds_of_cores():
    """One trained and measured there; one measured on a CPU; one whose training moved."""
    cells = table(
        ("a", "a", 360.0, 36.0, "done", "cuda: H200", "1"),
        ("b", "b", 720.0, 72.0, "done", "cpu: One", "2"),
        ("c", "c", 1080.0, 108.0, "done", "cpu: One", "3"),
        ("d", "d", 3600.0, 360.0, "done", "cpu: One", "4"),
    ).assign(trained_device=[None, "cuda: H200", "cuda: H200; cpu: One", "cpu: One"])
    assert core_hours.seconds_of(cells) == (3600.0, 540.0)
    assert core_hours.seconds_of(cells, gpu=True) == (2160.0, 36.0)
    expected = ["mine", "4", "4", "0", "1.00", "0.15", "1.15", "0.61"]
    assert core_hours.summary({"mine": cells})[0][:-1] == expected
    older = cells.iloc[[1]].assign(cell="older", trained_device=None)  # the same training, measured
    twice = pd.concat([older, cells.iloc[[1]]])  # by code that did not tell the device
    assert core_hours.seconds_of(twice) == (0.0, 144.0)


def test_the_command_prints_markdown(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["core_hours", "experiment=quick"])
    core_hours.main()
    header, rule, *rows = capsys.readouterr().out.splitlines()
    assert [word.strip() for word in header.strip("|").split("|")] == core_hours.HEADER
    assert set(rule) == {"|", "-"} and len(rows) == 1 and rows[0].startswith("| quick ")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["experiment=nope"], "experiment=nope: no table; there are .*overnight"),
        (["experiment=overnigt"], "; did you mean overnight[?]"),
        (["results_dir=/none"], "/none: no .*results.csv"),
        (["quick"], "quick: unknown argument; usage"),
    ],
)
def test_what_is_not_there_gets_one_line(words, told, monkeypatch):
    monkeypatch.setattr("sys.argv", ["core_hours", *words])
    with pytest.raises(UserError, match=told):
        core_hours.main()


def told_costs():
    """The rows of the findings' table: experiments, cells, core-hours."""
    section = COSTS.read_text().split("## What this cost")[1]
    rows = re.findall(r"^\| (`.*) \| (\d+) \| ([\d.]+) \|$", section, flags=re.M)
    return [(re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", names)), *rest) for names, *rest in rows]


def test_the_findings_tell_the_cells_and_core_hours_of_the_tables():
    tables, told = core_hours.read_tables(RESULTS), told_costs()
    assert len(told) >= 10
    for names, cells, hours in told:
        every = pd.concat([tables[name] for name in names]).drop_duplicates("cell")
        assert (names, int(cells)) == (names, len(every))
        spent = sum(core_hours.seconds_of(every)) / 3600
        assert (names, hours) == (names, f"{spent:.1f}")
