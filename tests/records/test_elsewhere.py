"""Rebuilding a table takes rows of the same cells from the tables beside it."""

import shutil

import pytest
from test_damage import whole
from test_table_and_folders import record

from common import UserError
from records.folders import CellFolder
from records.reading import read, require_attachments
from records.rebuild import rebuild
from records.table import enter

CELLS = ["0000", "0001", "0002"]


def without_runs(tmp_path):
    """The table ``x`` of a machine whose ``runs`` are gone."""
    _, path = whole(tmp_path)
    shutil.rmtree(tmp_path / "runs")
    return path


def test_cells_of_the_grid_come_from_another_table_with_their_files(tmp_path):
    path = without_runs(tmp_path)
    found = rebuild(tmp_path / "results", tmp_path / "runs", "y", CELLS[:2])
    assert (found.from_runs, found.kept, found.from_tables) == (0, 0, 2)
    other = tmp_path / "results/y"
    assert read(other / "results.csv").equals(read(path).iloc[:2])
    require_attachments(other, read(other / "results.csv"))
    for kind in ("configs", "curves", "errors"):
        names = sorted(p.name for p in (other / kind).iterdir())
        assert [name[:4] for name in names] == CELLS[:2]
        assert all(
            (other / kind / n).read_bytes() == (path.parent / kind / n).read_bytes() for n in names
        )


def test_a_row_or_record_of_its_own_is_not_replaced(tmp_path):
    path = without_runs(tmp_path)
    rebuild(tmp_path / "results", tmp_path / "runs", "y", CELLS)
    text = path.read_text()
    path.write_text(text.replace(",done,", ",failed,", 1))
    found = rebuild(tmp_path / "results", tmp_path / "runs", "x", CELLS)
    assert (found.kept, found.from_tables) == (2, 1)
    assert path.read_text() == text


@pytest.mark.parametrize("runs_remain", [True, False])
def test_an_unfinished_row_gives_way_to_a_finished_one(tmp_path, runs_remain):
    """The cell was stopped under one experiment and finished under another, on another machine."""
    _, path = whole(tmp_path)
    shutil.rmtree(tmp_path / "runs")
    run = CellFolder(tmp_path / "runs", "0001")
    run.folder.mkdir(parents=True)
    run.write_config({"experiment_name": "y", "results_version": 2, "seed": 1})
    run.write_record(record(run.name, seed=1, status="unfinished"))
    enter(tmp_path / "results", "y", [run])
    other = tmp_path / "results/y/results.csv"
    assert read(other)["status"].tolist() == ["unfinished"]
    if not runs_remain:
        shutil.rmtree(tmp_path / "runs")
    found = rebuild(tmp_path / "results", tmp_path / "runs", "y")
    assert (found.from_runs, found.kept, found.from_tables) == (0, 0, 1)
    assert read(other).equals(read(path).iloc[1:2].reset_index(drop=True))


def test_an_altered_file_elsewhere_does_not_come_along(tmp_path):
    path = without_runs(tmp_path)
    (path.parent / "curves/0001.csv").write_text("step\n9\n")
    rebuild(tmp_path / "results", tmp_path / "runs", "y", CELLS)
    other = tmp_path / "results/y"
    assert read(other / "results.csv")["curve_digest"].isna().tolist() == [False, True, False]
    assert not (other / "curves/0001.csv").exists()


def test_what_is_not_done_or_not_readable_elsewhere_is_passed_over(tmp_path):
    path = without_runs(tmp_path)
    path.write_text(path.read_text()[:-20])
    with pytest.raises(UserError, match="no sound row"):
        rebuild(tmp_path / "results", tmp_path / "runs", "y", CELLS)
