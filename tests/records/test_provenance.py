"""Whether the code that measured is that of its commit."""

import subprocess
from pathlib import Path

import pytest

from records import provenance


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """A repository that holds a file of each of this one's folders, committed."""
    names = subprocess.run(
        ["git", "ls-files", "*.py", "*.yaml", "*.md", "*.csv", "Makefile", "LICENSE"],
        cwd=provenance.ROOT, capture_output=True, text=True, check=True,
    ).stdout.split("\n")  # fmt: skip
    for name in {Path(name).parts[:1]: name for name in names if name}.values():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("committed")
    identity = ["-c", "user.name=n", "-c", "user.email=e"]
    for words in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "all"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    return tmp_path


def is_dirty():
    provenance.source.cache_clear()
    try:
        return provenance.source()["tree_dirty"]
    finally:
        provenance.source.cache_clear()


def test_every_file_is_code_but_those_that_decide_no_result(copied):
    assert is_dirty() is False
    other = {"docs", "results", "tests", "plots", "benchmarks"}
    paths = [path for path in copied.rglob("*") if path.is_file() and ".git" not in path.parts]
    for path in paths:
        top = path.relative_to(copied).parts[0]
        path.write_text("edited")
        is_code = top not in other and path.suffix in (".py", ".yaml")
        assert (top, is_dirty()) == (top, is_code)
        path.write_text("committed")
    assert {"instantiate.py", "hydra_plugins", "conf", "tasks"} <= {
        path.relative_to(copied).parts[0] for path in paths
    }


@pytest.mark.parametrize(
    ("name", "is_code"),
    [("new_kernel.py", True), ("sweeps/new.py", True), ("conf/model/new.yaml", True),
     ("tests/test_new.py", False), ("my_runs/ab/config.yaml", False), ("notes.txt", False)],
)  # fmt: skip
def test_a_new_file_is_code_where_python_or_hydra_may_read_it(copied, name, is_code):
    (copied / name).parent.mkdir(parents=True, exist_ok=True)
    (copied / name).write_text("pass")
    assert is_dirty() is is_code


def test_where_there_is_no_repository_nothing_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    assert is_dirty() is None
