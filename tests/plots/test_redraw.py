"""python -m plots: what it draws, and the one line it says when it cannot."""

import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import made_up_tables as tables
import pandas as pd
import pytest

from common import DiskFullError, UserError
from plots import FIGURES, SPECIAL
from plots.__main__ import main
from plots.redraw import redraw, warn_of_lost_files, warn_of_stand_ins
from records.reading import read

ROOT = Path(__file__).parents[2]


@pytest.fixture
def adhoc(tmp_path):
    """A results table without an experiment's YAML."""
    folder = tmp_path / "adhoc"
    folder.mkdir()
    table = tables.product(["lis"], ["standard"], [4], [32, 64, 128, 256])
    tables.write_attachments(table, folder)
    table.to_csv(folder / "results.csv", index=False)
    return folder


def run(*words):
    return subprocess.run(
        [sys.executable, "-m", "plots", *words],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
        env={**os.environ, "HYDRA_FULL_ERROR": "0"},
    )  # fmt: skip


def test_every_figure_is_drawn_and_its_files_printed(adhoc):
    done = run("experiment=adhoc", f"results_dir={adhoc.parent}")
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(
        "note: no configuration of adhoc here, so the usual figures are drawn;"
    )
    printed = [Path(line) for line in done.stdout.splitlines()]
    assert all(path.stat().st_size > 0 for path in printed)
    names = {path.name for path in printed}
    assert {"heatmap.pdf", "heatmap.png", "flops_table.tex", "report.html"} <= names
    assert all(any(name.startswith(figure) for name in names) for figure in FIGURES)


def test_redrawing_gives_the_same_bytes(adhoc):
    first = {path: path.read_bytes() for path in redraw("adhoc", adhoc.parent)}
    second = {path: path.read_bytes() for path in redraw("adhoc", adhoc.parent)}
    assert first == second
    left = set((adhoc / "figures").iterdir())
    assert left == {path for path in first if path.parent.name == "figures"}


def test_the_help_names_every_figure(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["plots", "--help"])
    main()
    said = set(re.findall(r"\w+", capsys.readouterr().out))
    assert {*FIGURES, *SPECIAL, "report"} <= said


def test_only_the_figures_asked_for(adhoc):
    assert {path.name for path in redraw("adhoc", adhoc.parent, ["heatmap"])} == {
        "heatmap.pdf", "heatmap.png"
    }  # fmt: skip


def test_an_outsiders_figure_is_found_by_its_path(adhoc, tmp_path, monkeypatch):
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "figure.py").write_text(
        "def draw(table, plan, experiment, out):\n"
        "    out.mkdir(exist_ok=True)\n"
        "    (out / 'mine.txt').write_text(str(len(table)))\n"
        "    return [out / 'mine.txt']\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    (path,) = redraw("adhoc", adhoc.parent, ["mine.figure"])
    assert path.read_text() == "4"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["experiment=no_such_experiment"], "no_such_experiment"),
        (["experiment=adhoc", "figures=[heatmap,nonsense]"], "unknown figure nonsense"),
        (["experiment=adhoc", "colour=red"], "colour=red"),
        ([], "experiment=NAME is missing"),
    ],
)
def test_a_bad_call_gets_one_line_and_status_2(adhoc, words, said):
    done = run(*words, f"results_dir={adhoc.parent}")
    assert done.returncode == 2
    assert done.stdout == "" and said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def put(name, value):
    """Return a function that writes ``value`` into column ``name`` of line 3."""

    def change(content):
        lines = [line.split(",") for line in content.splitlines()]
        lines[2][lines[0].index(name)] = value
        return "\n".join(",".join(fields) for fields in lines) + "\n"

    return change


DAMAGES = {
    "empty": (lambda content: "", "is empty"),
    "header only": (lambda content: content.splitlines()[0], "has a header but no rows"),
    "binary": (lambda content: "\x00\x01\x02", "lacks the columns"),
    "another table": (lambda content: "a,b\n1,2\n", "lacks the columns task, size"),
    "column renamed": (lambda c: c.replace("flops_total", "x"), "lacks the columns flops_total"),
    "cut short": (lambda content: content[:-60], "line 5: has"),
    "no number": (put("dim", "wide"), "line 3: dim=wide is no number"),
    "share above 1": (put("answer_accuracy", "97.0"), "line 3: answer_accuracy=97"),
    "unknown status": (put("status", "finished"), "line 3: status=finished is none of done"),
    "no accuracy": (put("answer_accuracy", ""), "line 3: answer_accuracy is empty although"),
    "half a layer": (put("layers", "2.5"), "line 3: layers=2.5 is no whole number"),
    "no cell": (put("cell", ""), "line 3: cell is empty"),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_a_damaged_table_is_refused_with_file_and_line(adhoc, case):
    path = adhoc / "results.csv"
    change, said = DAMAGES[case]
    path.write_text(change(path.read_text()))
    with pytest.raises(UserError) as caught:
        redraw("adhoc", adhoc.parent)
    assert str(path) in str(caught.value) and said in str(caught.value)
    assert not (adhoc / "figures").exists()


def test_a_known_experiment_without_a_table_says_how_to_get_one(tmp_path):
    with pytest.raises(UserError, match=r"python sweep.py experiment=quick"):
        redraw("quick", tmp_path)


def test_reading_keeps_what_the_table_says(adhoc):
    table = read(adhoc / "results.csv")
    expected = pd.read_csv(adhoc / "results.csv")
    for name in expected.columns:
        assert list(table[name].dropna()) == list(expected[name].dropna()), name


def test_a_full_disk_is_told_and_leaves_nothing_half_written(adhoc):
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, usual[1]))
    try:
        with pytest.raises(DiskFullError, match="no space left on the disk"):
            redraw("adhoc", adhoc.parent, ["heatmap"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert list((adhoc / "figures").iterdir()) == []


def test_rows_of_an_experiment_that_was_changed_since_are_told(capsys):
    """Its table shows the old ones in the place of the new until these are measured."""
    table = tables.product(["lis"], ["standard"], [4], [32, 64])
    plan = table[["task", "size", "model", "layers", "heads", "dim", "seed", "recipe", "cell"]]
    warn_of_stand_ins(Path("results.csv"), table, plan)
    warn_of_stand_ins(Path("results.csv"), table.head(1), plan)
    warn_of_stand_ins(Path("results.csv"), table, plan.head(1))
    assert capsys.readouterr().err == ""
    warn_of_stand_ins(Path("results.csv"), table, plan.assign(cell=["new", plan["cell"].iloc[1]]))
    assert "results.csv: 1 rows have other settings" in capsys.readouterr().err


def test_files_that_are_no_longer_beside_the_table_are_counted(tmp_path, capsys):
    table = pd.DataFrame(
        {"cell": ["aa", "bb"], "curve_digest": ["1", "2"], "errors_digest": [None, "3"]}
    )
    (tmp_path / "curves").mkdir()
    (tmp_path / "curves/aa.csv").write_text("")
    warn_of_lost_files(tmp_path, table)
    assert "1 of curves/, 1 of errors/ are not beside the table" in capsys.readouterr().err
    warn_of_lost_files(tmp_path, table.iloc[:1])
    assert capsys.readouterr().err == ""


def test_what_a_killed_drawing_left_is_removed_later(adhoc):
    figures = adhoc / "figures"
    figures.mkdir()
    old, new = figures / ".heatmap.png.a1.tmp", figures / ".heatmap.png.b2.tmp"
    for path in (old, new):
        path.write_bytes(b"half a picture")
    os.utime(old, (0, 0))
    redraw("adhoc", adhoc.parent, ["heatmap"])
    assert not old.exists() and new.exists()  # another process may be writing it


def test_a_picture_of_an_earlier_layout_is_named_and_kept(adhoc, capsys):
    redraw("adhoc", adhoc.parent, ["heatmap"])
    figures = adhoc / "figures"
    for name in ("heatmap_3_layers.png", "seeds.csv", "notes.md"):
        (figures / name).write_text("old")
    capsys.readouterr()
    redraw("adhoc", adhoc.parent, ["heatmap"])
    told = [line for line in capsys.readouterr().err.splitlines() if "earlier drawing" in line]
    assert told == [
        f"note: {figures}: heatmap_3_layers.png: left from an earlier drawing, not redrawn; "
        "delete what nobody needs"
    ]
    assert (figures / "heatmap_3_layers.png").exists()
