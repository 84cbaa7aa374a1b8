"""Whatever is altered on disk is named, set aside or rebuilt; it never gives a number silently."""

import csv
import io
import json
import os
import random

import filelock
import pandas as pd
import pytest
from test_table_and_folders import record, recorded

from common import RunError, UserError, write_text
from plots.redraw import redraw
from records import rebuild as rebuild_module
from records import table as table_module
from records.folders import CellFolder, WeightsFolder
from records.reading import read, require_attachments, row_digest
from records.rebuild import rebuild
from records.table import _settings, enter, read_table


def whole(tmp_path, count=3):
    """A table of some cells with their files, in ``results/x`` and ``runs``."""
    runs = []
    for i in range(count):
        run = CellFolder(tmp_path / "runs", f"{i:04x}")
        run.folder.mkdir(parents=True)
        run.write_config({"experiment_name": "x", "results_version": 2, "seed": i})
        write_text(run.folder / "curve.csv", f"step\n{i}\n")
        write_text(run.folder / "errors.json", json.dumps({"seed": i}))
        run.write_record(record(run.name, seed=i))
        runs.append(run)
    enter(tmp_path / "results", "x", runs)
    return runs, tmp_path / "results/x/results.csv"


def test_no_flipped_bit_in_a_record_is_read(tmp_path):
    run = recorded(tmp_path)
    path = run.folder / "record.json"
    content, chance = path.read_bytes(), random.Random(1)
    known = run.record()
    for _ in range(300):
        place, bit = chance.randrange(len(content)), chance.randrange(8)
        altered = bytearray(content)
        altered[place] ^= 1 << bit
        path.write_bytes(altered)
        assert run.record() in (None, known)


def test_no_flipped_bit_in_a_table_is_read(tmp_path):
    _, path = whole(tmp_path)
    content, chance = path.read_bytes(), random.Random(2)
    known = read(path)
    values = [name for name in known if name != "digest"]
    refused = 0
    for _ in range(200):
        place, bit = chance.randrange(len(content)), chance.randrange(8)
        altered = bytearray(content)
        altered[place] ^= 1 << bit
        path.write_bytes(altered)
        try:
            table = read(path)
        except UserError as error:
            assert "results.csv" in str(error) and "\n" not in str(error)
            refused += 1
        else:  # a name of a column that holds nothing, or the word digest
            for name in values:
                assert name not in table or table[name].equals(known[name]), bytes(altered)
    assert refused > 100


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (lambda t: t[: len(t) // 2], "is the file cut short?"),
        (lambda t: t.replace("\n", "\n<<<<<<< HEAD\n", 1), "line 2: has 1 fields"),
        (lambda t: t.replace("0.30000000000000004", "high", 1), "altered since it was written"),
        (lambda t: t.replace("0.30000000000000004", "0.9", 1), "altered since it was written"),
        (lambda t: t + t.splitlines()[-1] + "\n", "has a row already"),
        (lambda t: t.replace(t.splitlines()[1][-16:], "", 1), "altered since it was written"),
    ],
    ids=["half", "conflict", "word", "number", "twice", "no digest"],
)
def test_an_edited_table_is_refused_by_all_who_read_it_and_rebuilt(tmp_path, edit, told):
    runs, path = whole(tmp_path)
    text = path.read_text()
    path.write_text(edit(text))
    for reading in (
        lambda: read(path),
        lambda: read_table(path),
        lambda: enter(tmp_path / "results", "x", runs),
        lambda: redraw("x", tmp_path / "results"),
    ):
        with pytest.raises(UserError, match=r"results\.csv") as caught:
            reading()
        assert told in str(caught.value)
    found = rebuild(tmp_path / "results", tmp_path / "runs", "x")
    assert path.read_text() == text
    assert found.from_runs == 3 and found.kept == 0
    [aside] = (path.parent / ".before").iterdir()
    assert aside.read_text() == edit(text)


def without_digests(text):
    """The table as the version before wrote it."""
    rows = [line.split(",") for line in text.splitlines()]
    dropped = [i for i, name in enumerate(rows[0]) if name.endswith("digest")]
    kept = [[v for i, v in enumerate(row) if i not in dropped] for row in rows]
    return "\n".join(map(",".join, kept)) + "\n"


def test_a_table_of_the_version_before_is_read_and_gets_digests_when_written(tmp_path):
    runs, path = whole(tmp_path)
    path.write_text(without_digests(path.read_text()))
    assert len(read(path)) == 3
    runs[0].write_record(record(runs[0].name, finished_at="2027-01-01T00:00:00+00:00"))
    assert enter(tmp_path / "results", "x", runs)["digest"].notna().all()
    assert read(path)["digest"].notna().all()


def test_a_row_that_contradicts_its_record_is_named(tmp_path):
    runs, path = whole(tmp_path)
    path.write_text(without_digests(path.read_text()).replace("0.30000000000000004", "0.9", 1))
    with pytest.raises(
        UserError, match=r"cell 0000 has answer_accuracy=0\.9, its record"
    ) as caught:
        enter(tmp_path / "results", "x", runs)
    assert "python -m records experiment=x" in str(caught.value)
    rebuild(tmp_path / "results", tmp_path / "runs", "x")
    assert "0.9," not in path.read_text()


def test_sound_rows_from_elsewhere_stay_when_a_table_is_rebuilt(tmp_path):
    runs, path = whole(tmp_path)
    text = path.read_text()
    for name in ("record.json", "config.yaml"):
        (runs[1].folder / name).unlink()
    first = text.index("\n") + 1
    path.write_text(f"{text[:first]}<<<<<<< ours\n{text[first:]}")
    found = rebuild(tmp_path / "results", tmp_path / "runs", "x")
    assert (found.from_runs, found.kept) == (2, 1)
    assert path.read_text() == text


@pytest.mark.parametrize("kind", ["configs", "curves", "errors"])
def test_an_altered_file_beside_the_table_is_named_and_put_back(tmp_path, kind):
    _, path = whole(tmp_path)
    [beside] = (path.parent / kind).glob("0001.*")
    content = beside.read_bytes()
    beside.write_bytes(content.replace(b"1", b"7"))
    with pytest.raises(UserError, match=f"{kind}/0001.*altered since it was written"):
        redraw("x", tmp_path / "results")
    rebuild(tmp_path / "results", tmp_path / "runs", "x")
    assert beside.read_bytes() == content


def test_an_altered_file_of_a_run_is_left_out_with_a_warning(tmp_path, capsys):
    runs, path = whole(tmp_path)
    write_text(runs[0].folder / "errors.json", json.dumps({"seed": 9}))
    rebuild(tmp_path / "results", tmp_path / "runs", "x")
    assert "errors.json: altered since it was written; left out" in capsys.readouterr().err
    assert read(path)["errors_digest"].isna().tolist() == [True, False, False]


@pytest.mark.parametrize("kind", ["configs", "curves", "errors"])
def test_a_lost_file_beside_the_table_comes_back_with_the_next_merge(tmp_path, kind):
    runs, path = whole(tmp_path)
    [beside] = (path.parent / kind).glob("0001.*")
    content = beside.read_bytes()
    beside.unlink()
    enter(tmp_path / "results", "x", runs)
    assert beside.read_bytes() == content


def test_a_row_whose_configuration_is_lost_for_good_keeps_what_varies(tmp_path):
    """Its column and value went with the next row, and figures joined unlike cells."""
    runs = []
    for i, steps in enumerate((5, 6, 7)):
        run = recorded(tmp_path, f"{i:04x}", seed=i)
        run.write_config({"recipe": {"name": "fast", "steps": steps}, "model": {"name": "linear"}})
        runs.append(run)
    enter(tmp_path / "results", "x", runs[:2])
    for run in runs[:2]:
        (tmp_path / "results/x/configs" / f"{run.name}.yaml").unlink()
    _settings.cache_clear()  # as in another process
    table = enter(tmp_path / "results", "x", runs[2:]).set_index("cell")
    assert table["recipe.steps"].to_dict() == {"0000": "5", "0001": "6", "0002": "7"}


def test_a_lost_configuration_of_a_finished_cell_is_written_again(tmp_path):
    runs, path = whole(tmp_path, count=1)
    content = (runs[0].folder / "config.yaml").read_bytes()
    (runs[0].folder / "config.yaml").unlink()
    (path.parent / "configs/0000.yaml").unlink()
    runs[0].restore_config({"experiment_name": "x", "results_version": 2, "seed": 0})
    enter(tmp_path / "results", "x", runs)
    assert (path.parent / "configs/0000.yaml").read_bytes() == content
    assert runs[0].record() is not None


@pytest.mark.parametrize("cell", ["../../../mine", "x" * 300])
def test_the_name_of_a_cell_leads_to_no_file_outside(tmp_path, cell):
    """Whoever makes a table makes its digests, too; `records` moved the file away as altered."""
    _, path = whole(tmp_path, count=1)
    mine = tmp_path / "mine.yaml"
    mine.write_text("a: 1")
    [row] = csv.DictReader(io.StringIO(path.read_text()))
    row |= {"cell": cell, "config_digest": "0" * 16}
    row["digest"] = row_digest(row)
    pd.DataFrame([row]).to_csv(path, index=False)
    require_attachments(path.parent, read(path))
    assert rebuild(tmp_path / "results", tmp_path / "runs", "x").left_out == []
    assert mine.read_text() == "a: 1"


def test_nothing_to_rebuild_from_is_said(tmp_path):
    with pytest.raises(UserError, match="no sound row"):
        rebuild(tmp_path / "results", tmp_path / "runs", "x")
    assert not (tmp_path / "results").exists()


def test_a_mistyped_experiment_is_told_the_table_that_is_like_it(tmp_path):
    (tmp_path / "results/overnight").mkdir(parents=True)
    (tmp_path / "results/overnight/results.csv").touch()
    with pytest.raises(UserError, match=r"; did you mean overnight[?]$"):
        rebuild(tmp_path / "results", tmp_path / "runs", "overnigt")
    with pytest.raises(UserError, match=r"runs$"):  # not mistyped, but not run
        rebuild(tmp_path / "results", tmp_path / "runs", "overnigt", ["some cell"])


def test_a_record_of_the_version_before_needs_an_interval_of_its_own_accuracy(tmp_path):
    """It has no digest: its numbers are held against each other."""
    run = recorded(tmp_path)
    old = {**record(), "answer_accuracy": 0.375, "answer_accuracy_low": 0.345526294232981,
           "answer_accuracy_high": 0.40543039538840775, "n_test": 1000}  # fmt: skip
    path = run.folder / "record.json"
    path.write_text(json.dumps(old))
    assert run.record() == old
    for key, value in (("answer_accuracy", 0.376), ("n_test", 2000), ("answer_accuracy_low", 0.3)):
        path.write_text(json.dumps({**old, key: value}))
        assert run.record() is None


def test_an_interval_of_the_version_before_may_hold_rounding(tmp_path):
    run = recorded(tmp_path)
    none_right = {**record(), "answer_accuracy": 0.0, "answer_accuracy_low": 6.443754e-18,
                  "answer_accuracy_high": 0.0038267584855551214, "n_test": 1000}  # fmt: skip
    (run.folder / "record.json").write_text(json.dumps(none_right))
    assert run.record() == none_right


def test_what_training_noted_of_the_version_before_counts(tmp_path):
    weights = WeightsFolder(tmp_path, "aaaa")
    weights.folder.mkdir()
    weights.checkpoint.touch()
    assert weights.checkpoint_sha256() is None
    (weights.folder / "weights.json").write_text('{"weights": "aaaa", "checkpoint_sha256": "ab"}')
    assert weights.checkpoint_sha256() == "ab"


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path):
    runs, table = whole(tmp_path, count=1)
    for path in [runs[0].folder / "record.json", runs[0].folder / "config.yaml", table]:
        path.unlink()
        os.mkfifo(path)
    assert runs[0].record() is None and runs[0].config() == {}
    with pytest.raises(UserError, match="no regular file"):
        read(table)


def test_a_file_that_cannot_be_read_is_left_out_of_the_table_with_a_warning(tmp_path, capsys):
    run = recorded(tmp_path)
    (run.folder / "curve.csv").unlink(missing_ok=True)
    (run.folder / "curve.csv").mkdir()
    table = enter(tmp_path / "results", "x", [run])
    assert table["cell"].tolist() == [run.name] and table["curve_digest"].isna().all()
    assert f"{run.folder / 'curve.csv'}: cannot be read" in capsys.readouterr().err


def test_no_row_is_entered_between_reading_a_table_and_writing_it_anew(tmp_path, monkeypatch):
    """It would be lost: a row of another machine has no record here."""
    _, path = whole(tmp_path)
    other = recorded(tmp_path / "elsewhere", "eeee", seed=9)
    look, told = rebuild_module.rows_elsewhere, []

    def meanwhile(*given):
        try:
            enter(tmp_path / "results", "x", [other])
        except RunError as error:
            told.append(str(error))
        return look(*given)

    monkeypatch.setattr(rebuild_module, "rows_elsewhere", meanwhile)
    monkeypatch.setattr(table_module, "LOCK_SECONDS", 0.1)
    rebuild(tmp_path / "results", tmp_path / "runs", "x")
    assert len(told) == 1 and "held by another process" in told[0]
    enter(tmp_path / "results", "x", [other])
    assert sorted(read_table(path)["cell"]) == ["0000", "0001", "0002", "eeee"]


def test_a_rebuild_waits_two_minutes_for_the_lock_and_no_longer(tmp_path, monkeypatch):
    _, path = whole(tmp_path)
    monkeypatch.setattr(table_module, "LOCK_SECONDS", 0.1)
    held = pytest.raises(RunError, match=r"\.lock: held by another process for 0.1 s")
    with filelock.FileLock(path.parent / ".lock", is_singleton=False), held:
        rebuild(tmp_path / "results", tmp_path / "runs", "x")
