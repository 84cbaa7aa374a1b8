"""The results table: rows are upserted by cell, also from concurrent processes."""

import multiprocessing
import re

import filelock
import pytest
from processes import ROOT

from common import UserError
from experiments.table import COLUMNS, read_cells, read_table, upsert

# Columns that external scripts may rely on.
PROMISED = """
task size max_len model layers heads dim seed recipe status answer_accuracy answer_accuracy_low
answer_accuracy_high chain_exact_match n_test steps train_seconds eval_seconds params
flops_linear_layers flops_total state_bytes precision device cell commit finished_at
""".split()


def record(cell, accuracy=0.5, status="done", finished_at="2026-01-01", seed=0, **settings):
    config = {
        "task": {"name": "lis", "size": 4, **settings},
        "model": {"name": "standard", "num_layers": 1, "num_heads": 1, "dim": 8},
        "recipe": {"name": "fast", "precision": "float32"},
        "seed": seed,
    }
    row = {
        "task": "lis", "size": 4, "format": "cot", "model": "standard", "dim": 8, "seed": seed,
        "recipe": "fast", "status": status, "answer_accuracy": accuracy, "cell": cell,
        "finished_at": finished_at,
    }  # fmt: skip
    return {"row": row, "config": config, "curve": {"step": [1]}}


def test_later_rows_replace_earlier_ones_and_failed_rows_replace_no_done_ones(tmp_path):
    upsert(tmp_path, [record("a", 0.1), record("b", 0.2, seed=1)])
    upsert(tmp_path, [record("a", 0.3, finished_at="2026-02-01")])
    upsert(tmp_path, [record("b", None, status="failed", finished_at="2027-01-01")])
    upsert(tmp_path, [record("b", 0.9, finished_at="2025-01-01")])
    table = read_table(tmp_path).set_index("cell")
    assert table["answer_accuracy"].to_dict() == {"a": 0.3, "b": 0.2}
    assert set(read_cells(tmp_path)) == {"a", "b"}
    upsert(tmp_path, [record("c", None, status="failed", seed=2)])
    upsert(tmp_path, [record("c", 0.7, finished_at="2025-01-01", seed=2)])
    assert read_table(tmp_path).set_index("cell")["status"]["c"] == "done"


def test_known_records_are_entered_without_a_lock(tmp_path, monkeypatch):
    """So a colleague's finished cells can be read without write permission."""
    upsert(tmp_path, [record("a")])
    monkeypatch.setattr(filelock, "FileLock", None)
    upsert(tmp_path, [record("a")])
    with pytest.raises(TypeError):
        upsert(tmp_path, [record("a", finished_at="2027-01-01")])


def test_columns_include_the_promised_ones_and_are_documented():
    rows = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs" / "columns.md").read_text(), re.MULTILINE)
    assert set(PROMISED) <= set(COLUMNS) <= {name for row in rows for name in row.split(", ")}


def test_varying_setting_has_a_column_and_missing_values_are_empty(tmp_path):
    upsert(tmp_path, [record("a", order="x"), record("b", order="y", seed=1)])
    table = read_table(tmp_path)
    assert list(table.columns) == [*COLUMNS, "task.order"]
    assert table["task.order"].tolist() == ["x", "y"]
    assert table["steps"].isna().all()
    text = (tmp_path / "results.csv").read_text().splitlines()[1]
    assert "done,,,0.5,," in text


def test_row_of_changed_code_is_replaced(tmp_path):
    mine = [record(cell) for cell in ("first", "second")]  # of one configuration
    upsert(tmp_path, [mine[0], record("ours", seed=1)])
    before = (tmp_path / "results.csv").read_text()
    upsert(tmp_path, [mine[1]])
    assert set(read_table(tmp_path)["cell"]) == set(read_cells(tmp_path)) == {"ours", "second"}
    (tmp_path / "results.csv").write_text(before)  # as if killed between the two writes
    upsert(tmp_path, [mine[1]])
    assert set(read_table(tmp_path)["cell"]) == {"ours", "second"}
    (tmp_path / "results.csv").unlink()
    upsert(tmp_path, [mine[0]])
    assert read_table(tmp_path)["cell"].tolist() == ["first"]


def test_a_table_that_lost_its_cells_keeps_its_rows(tmp_path):
    upsert(tmp_path, [record("a")])
    before = (tmp_path / "results.csv").read_text()
    (tmp_path / "cells.jsonl").unlink()
    with pytest.raises(UserError, match="jsonl is missing"):
        upsert(tmp_path, [record("b", seed=1)])
    assert (tmp_path / "results.csv").read_text() == before


def test_cell_and_commit_that_look_like_numbers_stay_text(tmp_path):
    entry = record("012345678901")
    entry["row"]["commit"] = "12345678e901"
    upsert(tmp_path, [entry])
    (row,) = read_table(tmp_path).to_dict("records")
    assert (row["cell"], row["commit"]) == ("012345678901", "12345678e901")


def _enter(arguments):
    folder, number = arguments
    upsert(folder, [record(f"cell{number}", seed=number)])


def test_many_processes_enter_rows_at_once(tmp_path):
    with multiprocessing.get_context("fork").Pool(4) as pool:
        pool.map(_enter, [(tmp_path, number) for number in range(24)])
    table = read_table(tmp_path)
    assert sorted(table["seed"]) == list(range(24))
    assert len(read_cells(tmp_path)) == 24


def test_a_failed_run_of_changed_code_keeps_the_finished_row(tmp_path):
    upsert(tmp_path, [record("first")])
    upsert(tmp_path, [record("second", None, status="failed")])
    assert "first" in set(read_table(tmp_path)["cell"])
