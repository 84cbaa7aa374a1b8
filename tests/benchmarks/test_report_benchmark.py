"""Arguments, tables and records of the benchmarks; how figures are taken."""

import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from benchmarks.shared.processes import in_new_process, side_by_side
from benchmarks.shared.report import RECORDS, print_table, read_options, read_rows, write_record
from benchmarks.shared.timing import in_turns, seconds_of
from common import UserError


@dataclass
class Options:
    device: str = "cpu"
    dims: list[int] = field(default_factory=lambda: [32])
    names: list[str] = field(default_factory=list)
    max_hours: float | None = None
    record: Path = Path("record.json")


def test_arguments_have_the_types_of_their_fields():
    assert read_options(Options, None) == Options()
    words = ["dims=64,128", "names=[fast,paper]", "max_hours=2", "record=/tmp/x.json"]
    found = read_options(Options, words)
    assert found == Options("cpu", [64, 128], ["fast", "paper"], 2.0, Path("/tmp/x.json"))
    assert read_options(Options, ["dims=[]"]).dims == []


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("dimz=3", "dimz=3: unknown, .* the keys are device, dims, names, max_hours, record"),
        ("--device", "--device: unknown, write KEY=VALUE"),
        ("dims=wide", "dims=wide: Value 'wide' .* could not be converted to Integer"),
        ("max_hours=[1", r"max_hours=\[1: while parsing"),
    ],
)
def test_a_bad_argument_is_named(word, message):
    with pytest.raises(UserError, match=message):
        read_options(Options, [word])


def test_the_command_names_the_benchmarks_that_there_are():
    command = [sys.executable, "-m", "benchmarks", "nonsense"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=RECORDS.parents[1])
    assert done.returncode == 2 and "Traceback" not in done.stderr
    for name in ("check", "ceiling", "rates", "recipes", "training"):
        assert name in done.stderr


def test_a_table_is_not_cut_in_a_file(capsys):
    long = "a name that is longer than eighty columns, " * 4
    print_table("Title", ["what", "number", "none"], [[long, 123456.78, None], ["b", 7, 0.5]])
    title, header, _, first, second = capsys.readouterr().out.splitlines()
    assert title.strip() == "Title" and header.split() == ["what", "number", "none"]
    assert long.strip() in first and first.split()[-1] == "123,457"
    assert second.split() == ["b", "7", "0.5"]


def test_a_record_says_where_its_numbers_come_from(tmp_path, capsys):
    path = tmp_path / "new" / "record.json"
    write_record(path, {"rows": [1, 2]})
    record = json.loads(path.read_text())
    assert record["about"].keys() >= {"commit", "device", "threads", "torch_version", "measured_at"}
    assert record["rows"] == read_rows(path) == [1, 2]
    assert str(path) in capsys.readouterr().out
    assert read_rows(tmp_path / "absent.json") == []
    path.write_text('{"rows": [')
    with pytest.raises(UserError, match=r"record.json: damaged"):
        read_rows(path)


def test_actions_take_turns_and_the_first_ones_do_not_count():
    called = []
    actions = {name: lambda name=name: called.append(name) for name in "ab"}
    taken = in_turns(actions, repeats=3, warm_up=2)
    assert called == list("ab" * 5)
    assert {name: len(seconds) for name, seconds in taken.items()} == {"a": 3, "b": 3}


def test_waiting_takes_no_cpu_seconds():
    assert seconds_of(lambda: time.sleep(0.2)) < 0.1
    assert seconds_of(lambda: sum(range(10**6))) > 0


def test_jobs_are_drawn_only_when_a_process_is_free():
    drawn = []

    def jobs():
        for number in range(5):
            drawn.append(number)
            yield number

    results = side_by_side(abs, jobs(), 2)
    assert next(results) in (0, 1) and len(drawn) == 2
    assert sorted(results) != [] and drawn == [0, 1, 2, 3, 4]
    assert list(side_by_side(abs, [-1, -2], 1)) == [1, 2]


def test_an_error_in_another_process_is_raised_here():
    assert in_new_process(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        list(side_by_side((1).__truediv__, [0], 2))
