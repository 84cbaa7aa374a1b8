"""The cache of compiled functions: where it lies, which edits and what damage it notices."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DRAW = "from tasks.lis import LIS; print(LIS(5).draw(0, 0, 0, 3).tokens.tolist())"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the package, without its cache."""
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "tasks", tmp_path / "copy" / "tasks", ignore=ignore)
    shutil.copy(ROOT / "common.py", tmp_path / "copy")
    return tmp_path / "copy"


def drawn(folder: Path, **environment: str) -> str:
    # Python takes a file of the same second and size for the one that it has compiled.
    own = {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    usual = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
    return subprocess.run(
        [sys.executable, "-c", DRAW], text=True, check=True, capture_output=True, cwd=folder,
        env={**usual, **own, **environment},
    ).stdout  # fmt: skip


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("random_numbers.py", "0x9E3779B97F4A7C15", "0x9E3779B97F4A7C17"),
        ("sequences.py", "EOS_ID = 1", "EOS_ID = 7"),  # a constant, in a file without kernels
    ],
)
def test_an_edit_in_another_file_reaches_the_kernels(copy, name, old, new) -> None:
    """Numba's own cache would go on with the old code."""
    first = drawn(copy)
    assert list((copy / "tasks" / "__pycache__").glob("kernels-*/**/*.nbc"))
    assert drawn(copy) == first
    source = copy / "tasks" / name
    assert old in source.read_text()
    source.write_text(source.read_text().replace(old, new))
    assert drawn(copy) != first


@pytest.mark.parametrize(("suffix", "content"), [("nbi", b""), ("nbi", b"other"), ("nbc", None)])
def test_an_unreadable_cache_is_compiled_again(copy, suffix: str, content: bytes | None) -> None:
    """Such as the empty index that a killed process leaves: numba raises EOFError for ever."""
    first = drawn(copy)
    files = list((copy / "tasks" / "__pycache__").glob(f"kernels-*/**/*.{suffix}"))
    assert files
    for path in files:
        path.write_bytes(path.read_bytes()[:200] if content is None else content)
    assert drawn(copy) == first
    again = list((copy / "tasks" / "__pycache__").glob(f"kernels-*/**/*.{suffix}"))
    assert min(path.stat().st_size for path in again) > 200


def test_numba_s_own_setting_names_the_cache(copy, tmp_path: Path) -> None:
    assert drawn(copy, NUMBA_CACHE_DIR=str(tmp_path / "cache")) == drawn(ROOT)
    assert list(tmp_path.glob("cache/kernels-*/**/*.nbc"))
    assert not (copy / "tasks" / "__pycache__").exists()


def test_an_installation_that_cannot_be_written_caches_in_the_home_folder(copy, tmp_path) -> None:
    """Under a name of its own: numba's way on to the home folder would mix versions up."""
    (copy / "tasks" / "__pycache__").touch()  # stands in the way, of root too
    assert drawn(copy, HOME=str(tmp_path)) == drawn(ROOT)
    assert list(tmp_path.glob(".cache/cotcost/kernels-*/**/*.nbc"))
    assert not (tmp_path / ".cache" / "numba").exists()


def test_without_any_folder_to_write_to_the_kernels_are_compiled_anew(copy) -> None:
    (copy / "tasks" / "__pycache__").touch()
    assert drawn(copy, HOME=os.devnull, XDG_CACHE_HOME=os.devnull) == drawn(ROOT)
