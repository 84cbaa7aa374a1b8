import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from errors import RunError, UserError
from experiments.store import COLUMNS, Run, enter, read_table
from training.files import write_atomically, write_text

CONTRACT = (
    "task size max_len model layers heads dim seed recipe status answer_accuracy "
    "answer_accuracy_low answer_accuracy_high chain_exact_match n_test steps train_seconds "
    "eval_seconds params flops_linear_layers flops_total state_bytes device cell commit finished_at"
).split()


def record(cell="aaaa", **changes):
    values = {
        "task": "lis", "size": 4, "format": "cot", "model": "linear", "layers": 3, "dim": 8,
        "recipe": "fast", "seed": 0, "cell": cell, "status": "done", "answer_accuracy": 0.1 + 0.2,
        "finished_at": "2026-01-01T00:00:00+00:00",
    }  # fmt: skip
    return {**values, **changes}


def recorded(folder, cell="aaaa", **changes):
    run = Run(folder / "runs", cell)
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
    run = Run(tmp_path / "runs", "aaaa")
    code = (
        "import sys, time; from experiments.store import Run\n"
        f"run = Run({str(tmp_path / 'runs')!r}, 'aaaa'); print(run.acquire(), flush=True)\n"
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
