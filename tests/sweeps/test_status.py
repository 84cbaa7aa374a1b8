"""What a person reads of a sweep while it runs."""

import contextlib
import types

import pytest

from config.compose import compose_plain
from config.grid import Cell
from config.identity import cell_name
from config.schema import validate_cell
from records.folders import CellFolder
from records.table import read_table
from sweeps import status
from sweeps.cost import CostEstimate
from sweeps.plan import Planned
from sweeps.tables import duration, print_plan, print_summary


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.4, "0.4 s"), (22.3, "22 s"), (99, "99 s"), (101, "1.7 min"), (5400, "90 min"),
     (9000, "2.5 h"), (900_000, "250 h")],
)  # fmt: skip
def test_a_duration_reads_as_a_person_says_it(seconds, told):
    assert duration(seconds) == told


@pytest.fixture
def watched(monkeypatch):
    """Watch a sweep whose only cell stands as given, look by look; return how often it looked."""

    def follow(*statuses, seconds=1.0):
        clock, looks = [0.0], iter(statuses)
        sweep = types.SimpleNamespace(
            cells=[], plan=lambda: [types.SimpleNamespace(status=next(looks))]
        )

        def sleep(_seconds):
            clock[0] += seconds

        timer = types.SimpleNamespace(sleep=sleep, monotonic=lambda: clock[0])
        monkeypatch.setattr(status, "time", timer)
        monkeypatch.setattr(status, "estimate_of", lambda _: None)
        monkeypatch.setattr(status, "_status", lambda _, plan, *__: f"the cell is {plan[0].status}")
        status.watch(sweep)
        return len(statuses) - len(list(looks))

    return follow


def test_watching_outlasts_the_pause_between_two_cells(watched, capsys):
    assert watched("running", "missing", "running", "done", "never looked at") == 4
    assert "the cell is done" in capsys.readouterr().out


def test_watching_ends_when_nothing_has_run_for_a_while(watched):
    assert watched(*["unfinished"] * 9, seconds=status.QUIET_SECONDS / 4) == 6


def test_ctrl_c_ends_watching_without_an_error(watched, monkeypatch, capsys):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(status, "Live", lambda **_: contextlib.nullcontext(types.SimpleNamespace(
        update=lambda *_, **__: interrupted())))  # fmt: skip
    assert watched("running") == 1
    assert capsys.readouterr().err == ""


def test_a_failure_is_told_as_it_is_with_brackets_and_colons(capsys, tmp_path):
    reason = "RuntimeError: [/heads] of shape [batch, length] :warning:"
    words = ["task.size=2", "data=quick", "model.dim=8", "recipe=quick", "logger=none"]
    config = validate_cell(compose_plain("train", words))
    plan = [Planned(Cell(cell_name(config), config, ()), CellFolder.of(config), "failed", reason)]
    print_plan(plan, CostEstimate(read_table(tmp_path / "none.csv")))
    told = "".join(capsys.readouterr().out.split())
    for word in ("[/heads]", "[batch,", ":warning:"):
        assert word in told
    print_summary(plan, {})
    assert reason in capsys.readouterr().out


def test_recipes_and_formats_are_told_apart(capsys):
    words = ["task.size=2", "data=quick", "model.dim=8", "logger=none"]
    ways = ["recipe=quick", "recipe=paper", "recipe=quick task.format=direct"]
    configs = [validate_cell(compose_plain("train", [*words, *way.split()])) for way in ways]
    cells = [Cell(cell_name(config), config, ()) for config in configs]
    plan = [Planned(cell, CellFolder.of(cell.config), "done") for cell in cells]
    shares = zip(plan, (0.5, 0.75, 0.25), strict=True)
    print_summary(plan, {p.cell.name: {"answer_accuracy": share} for p, share in shares})
    told = capsys.readouterr().out
    for line in ("cot    │ quick  │ 50.0%", "cot    │ paper  │ 75.0%", "direct │ quick  │ 25.0%"):
        assert line in told
    print_summary(plan[:1], {})
    assert "recipe" not in capsys.readouterr().out
