import json
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from common import RunError, UserError, write_atomically, write_text
from records.folders import CellFolder, WeightsFolder
from records.table import COLUMNS, enter, read_table

CONTRACT = (
    "task size max_len model layers heads dim seed recipe status answer_accuracy "
    "answer_accuracy_low answer_accuracy_high chain_exact_match n_test steps train_seconds "
    "eval_seconds params flops_linear_layers flops_total state_bytes device cell commit finished_at"
).split()


def record(cell="aaaa", **changes):
    values = {
        "task": "lis", "size": 4, "format": "cot", "model": "linear", "layers": 3, "dim": 8,
        "recipe": "fast", "seed": 0, "cell": cell, "status": "done", "answer_accuracy": 0.1 + 0.2,
        "heads": 4, "max_len": 11, "flops_linear_layers": 8, "flops_total": 9,
        "finished_at": "2026-01-01T00:00:00+00:00",
    }  # fmt: skip
    return {**values, **changes}


def recorded(folder, cell="aaaa", **changes):
    run = CellFolder(folder / "runs", cell)
    run.folder.mkdir(parents=True, exist_ok=True)
    run.write_record(record(cell, **changes))
    return run


def test_every_column_of_the_contract_is_there():
    assert set(CONTRACT) <= set(COLUMNS)


def test_unmeasured_is_empty_not_zero_and_floats_come_back_exactly(tmp_path):
    enter(tmp_path, "x", [recorded(tmp_path)])
    assert ",0.30000000000000004," in (tmp_path / "x/results.csv").read_text()
    row = read_table(tmp_path / "x/results.csv").iloc[0]
    assert row["answer_accuracy"] == 0.1 + 0.2
    assert pd.isna(row["n_test"]) and pd.isna(row["commit"])


def test_order_of_arrival_does_not_matter(tmp_path):
    runs = [recorded(tmp_path, f"{i:04x}", seed=i) for i in range(6)]
    enter(tmp_path, "one", runs)
    for run in reversed(runs):
        enter(tmp_path, "other", [run])
    assert (tmp_path / "one/results.csv").read_bytes() == (
        tmp_path / "other/results.csv"
    ).read_bytes()


def test_entering_twice_changes_nothing_and_a_newer_record_replaces(tmp_path):
    run = recorded(tmp_path, status="failed", reason="diverged")
    enter(tmp_path, "x", [run])
    before = (tmp_path / "x/results.csv").stat().st_mtime_ns
    enter(tmp_path, "x", [run])
    assert (tmp_path / "x/results.csv").stat().st_mtime_ns == before
    run.write_record(record(finished_at="2026-01-02T00:00:00+00:00"))
    table = enter(tmp_path, "x", [run])
    assert table["status"].tolist() == ["done"]


def test_rows_measured_elsewhere_stay(tmp_path):
    enter(tmp_path, "x", [recorded(tmp_path / "gpu", "bbbb", device="cuda: H100")])
    table = enter(tmp_path, "x", [recorded(tmp_path)])
    assert sorted(table["cell"]) == ["aaaa", "bbbb"]


def test_attachments_are_copied(tmp_path):
    run = recorded(tmp_path)
    write_text(run.folder / "curve.csv", "step\n1\n")
    run.write_config({"seed": 0})
    enter(tmp_path, "x", [run])
    assert (tmp_path / "x/curves/aaaa.csv").read_text() == "step\n1\n"
    assert (tmp_path / "x/configs/aaaa.yaml").read_text() == "seed: 0\n"


def _enter_one(folder, number):
    enter(folder, "x", [recorded(folder, f"{number:04x}", seed=number)])


def test_many_writers_at_once_lose_nothing(tmp_path):
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_enter_one, args=(tmp_path, i)) for i in range(12)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    table = read_table(tmp_path / "x/results.csv")
    assert sorted(table["seed"]) == list(range(12))
    assert not list((tmp_path / "x").glob(".*.tmp"))


def test_a_damaged_record_counts_as_none(tmp_path):
    run = recorded(tmp_path)
    text = (run.folder / "record.json").read_text()
    (run.folder / "record.json").write_text(text[:30])
    assert run.record() is None
    (run.folder / "record.json").write_text(json.dumps([1]))
    assert run.record() is None


@pytest.mark.parametrize("content", ["nonsense\n1\n", "\x00\x01", ""])
def test_a_damaged_table_is_refused_not_overwritten(tmp_path, content):
    (tmp_path / "x").mkdir()
    path = tmp_path / "x/results.csv"
    path.write_text(content)
    with pytest.raises(UserError, match=r"results\.csv"):
        enter(tmp_path, "x", [recorded(tmp_path)])
    assert path.read_text() == content


def test_the_lock_is_free_once_its_holder_is_dead(tmp_path):
    run = CellFolder(tmp_path / "runs", "aaaa")
    code = (
        "import sys, time; from records.folders import CellFolder\n"
        f"run = CellFolder({str(tmp_path / 'runs')!r}, 'aaaa'); print(run.acquire(), flush=True)\n"
        "time.sleep(60)"
    )
    root = Path(__file__).resolve().parents[2]
    holder = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    )  # fmt: skip
    assert holder.stdout.readline() == "True\n"
    assert run.is_running()
    assert not run.acquire()
    holder.kill()
    holder.wait()
    assert not run.is_running()
    assert run.acquire()
    run.release()


def test_a_write_that_fails_leaves_the_old_file_whole(tmp_path):
    path = tmp_path / "record.json"
    write_text(path, "old")

    def half(temporary):
        temporary.write_text("ne")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, half)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["record.json"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_clear_line(tmp_path):
    def write(temporary):
        with Path("/dev/full").open("w") as full:
            full.write("x" * 10_000)

    with pytest.raises(RunError, match="no space left"):
        write_atomically(tmp_path / "x", write)
    assert not list(tmp_path.iterdir())


def test_a_finished_row_is_never_replaced_by_an_unfinished_record(tmp_path):
    """Whatever the clocks say: the row may come from another machine, the record from a failure."""
    enter(tmp_path, "x", [recorded(tmp_path / "gpu", "aaaa")])
    late = "2099-01-01T00:00:00+00:00"
    for status in ("failed", "unfinished"):
        here = recorded(tmp_path, "aaaa", status=status, reason="killed", finished_at=late)
        assert enter(tmp_path, "x", [here])["status"].tolist() == ["done"]


def test_a_finished_record_replaces_a_failed_row_from_the_future(tmp_path):
    late = "2099-01-01T00:00:00+00:00"
    run = recorded(tmp_path, status="failed", reason="killed", finished_at=late)
    enter(tmp_path, "x", [run])
    run.write_record(record())
    assert enter(tmp_path, "x", [run])["status"].tolist() == ["done"]


def test_of_two_finished_measurements_the_later_stays(tmp_path):
    late = recorded(tmp_path / "gpu", finished_at="2026-02-02T00:00:00+00:00", device="cuda: H100")
    enter(tmp_path, "x", [late])
    table = enter(tmp_path, "x", [recorded(tmp_path)])
    assert table["device"].tolist() == ["cuda: H100"]


def test_rows_keep_their_text_when_rows_without_numbers_join_and_leave(tmp_path):
    """A column with gaps is read as floats by pandas; whole numbers must stay whole."""
    params = 2**60 + 1
    enter(tmp_path, "x", [recorded(tmp_path, "aaaa", params=7, flops_training=params)])
    before = (tmp_path / "x/results.csv").read_bytes()
    other = recorded(tmp_path, "bbbb", seed=1, status="failed", reason="diverged")
    enter(tmp_path, "x", [other])
    other.write_record(record("bbbb", seed=1, params=7))
    enter(tmp_path, "x", [other])
    after = (tmp_path / "x/results.csv").read_bytes()
    assert before.splitlines() == after.splitlines()[:2]
    assert str(params).encode() in after


@pytest.mark.parametrize(
    "change",
    [{"status": "perfect"}, {"status": None}, {"finished_at": None}, {"cell": "bbbb"}],
    ids=str,
)
def test_a_record_that_this_version_does_not_understand_counts_as_none(tmp_path, change):
    run = recorded(tmp_path)
    assert run.record() is not None
    run.write_record({**record(), **change})
    assert run.record() is None
    assert not len(enter(tmp_path, "x", [run]))


def half_written(*paths):
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("half")
    return paths


def test_what_killed_writers_left_is_removed_by_the_next(tmp_path):
    run, weights = recorded(tmp_path), WeightsFolder(tmp_path / "runs", "aaaa")
    enter(tmp_path, "x", [run])
    of_cell = half_written(*(run.folder / f".{name}.1.tmp" for name in run.names))
    of_weights = half_written(*(run.folder / f".{name}.1.tmp" for name in weights.names))
    of_both = half_written(run.folder / ".config.yaml.1.tmp")
    of_table = half_written(tmp_path / "x/.results.csv.1.tmp", tmp_path / "x/curves/.a.csv.1.tmp")
    assert weights.acquire()
    assert not any(path.exists() for path in (*of_weights, *of_both))
    assert all(path.exists() for path in of_cell)
    weights.release()
    assert run.acquire()
    assert not any(path.exists() for path in of_cell)
    run.release()
    enter(tmp_path, "x", [run])
    assert not any(path.exists() for path in of_table)


FOLDERS = {"cell": CellFolder, "weights": WeightsFolder}


@pytest.mark.parametrize(("writer", "other"), [("cell", "weights"), ("weights", "cell")])
def test_one_lock_leaves_alone_what_the_holder_of_the_other_writes(tmp_path, writer, other):
    holder, second = FOLDERS[writer](tmp_path, "aaaa"), FOLDERS[other](tmp_path, "aaaa")
    assert holder.acquire()

    def write(temporary):
        temporary.write_text("whole")
        assert second.acquire()
        second.release()

    for name in (*holder.names, "config.yaml"):
        write_atomically(holder.folder / name, write)
        assert (holder.folder / name).read_text() == "whole"
    write_atomically(holder.folder / "queued.json", write)  # by a sweep, under no lock
    holder.release()


def test_a_merge_leaves_alone_what_is_drawn_beside_the_table(tmp_path):
    run = recorded(tmp_path)

    def draw(temporary):
        temporary.write_text("<html>")
        enter(tmp_path, "x", [run])

    write_atomically(tmp_path / "x/report.html", draw)
    assert (tmp_path / "x/report.html").read_text() == "<html>"


def test_what_nobody_finishes_within_an_hour_is_removed_whatever_its_name(tmp_path):
    run = recorded(tmp_path)
    enter(tmp_path, "x", [run])
    left = half_written(run.folder / ".queued.json.1.tmp", tmp_path / "x/.report.html.1.tmp")
    for path in left:
        os.utime(path, (time.time() - 4000,) * 2)
    assert run.acquire()
    run.release()
    enter(tmp_path, "x", [run])
    assert not any(path.exists() for path in left)


def _probe_for(folder, seconds):
    run, deadline = CellFolder(folder, "aaaa"), time.monotonic() + seconds
    while time.monotonic() < deadline:
        run.is_running()


def test_looking_whether_a_cell_runs_does_not_keep_a_worker_from_it(tmp_path):
    run = CellFolder(tmp_path, "aaaa")
    assert run.acquire()
    run.release()
    context = multiprocessing.get_context("fork")
    watchers = [context.Process(target=_probe_for, args=(tmp_path, 1.0)) for _ in range(2)]
    for watcher in watchers:
        watcher.start()
    taken = []
    while any(watcher.is_alive() for watcher in watchers):
        taken.append(run.acquire())
        run.release()
    assert taken and all(taken)


def test_a_row_whose_configuration_is_lost_adds_no_columns(tmp_path):
    for name, steps in (("aaaa", None), ("bbbb", 5)):
        run = recorded(tmp_path, name, seed=int(name == "bbbb"))
        if steps:
            run.write_config(
                {"recipe": {"name": "fast", "steps": steps}, "model": {"name": "linear"}}
            )
        table = enter(tmp_path, "x", [run])
    assert "recipe.steps" not in table and len(table) == 2


def test_a_row_of_an_older_version_of_the_code_gives_way(tmp_path):
    """The same settings under another name: what decides results in the code has changed."""
    for name in ("aaaa", "bbbb"):
        run = recorded(tmp_path, name)
        run.write_config({"recipe": {"name": "fast", "steps": 5}, "model": {"name": "linear"}})
        table = enter(tmp_path, "x", [run])
    assert table["cell"].tolist() == ["bbbb"]
