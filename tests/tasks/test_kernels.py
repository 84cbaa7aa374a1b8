"""The cache of compiled kernels: its folder, invalidation after edits."""

import os
from pathlib import Path

import pytest
from processes import ROOT, output

KERNEL = """
from tasks.kernels import kernel
from small.numbers import NUMBER

@kernel
def number():
    return NUMBER
"""


@pytest.fixture
def small(tmp_path: Path, monkeypatch) -> Path:
    """A package with one kernel, and a constant in a file without kernels."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "numbers.py").write_text("NUMBER = 17\n")
    (tmp_path / "small" / "kernels.py").write_text(KERNEL)
    return tmp_path / "small"


def printed(package: Path, **environment: str) -> str:
    # Python reuses bytecode if a source file keeps its size and its time stamp in seconds.
    environment |= {"PYTHONPATH": f"{package.parent}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    return output("-c", "from small.kernels import number; print(number())", **environment)


def cached(folder: Path, suffix: str = "nbc") -> list[Path]:
    return list(folder.glob(f"kernels-*/**/*.{suffix}"))


def test_edit_in_another_file_recompiles_kernels(small: Path, tmp_path: Path) -> None:
    """Numba's own cache would keep the old code. Without an edit, nothing is recompiled.
    `NUMBA_CACHE_DIR` sets the folder."""
    own = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    assert printed(small, **own) == "17\n"
    [path] = cached(tmp_path / "cache")
    written = path.stat().st_mtime_ns
    assert printed(small, **own) == "17\n" and path.stat().st_mtime_ns == written
    (small / "numbers.py").write_text("NUMBER = 18\n")
    assert printed(small, **own) == "18\n" and not (small / "__pycache__").exists()


def test_read_only_installation_caches_in_the_home_folder(small, tmp_path) -> None:
    """In a separate folder, because numba's own fallback would mix up versions. Without any
    writable folder, kernels are recompiled."""
    (small / "__pycache__").touch()  # blocks the folder, even for root
    assert printed(small, HOME=str(tmp_path)) == "17\n"
    assert cached(tmp_path / ".cache" / "cotcost")
    assert not (tmp_path / ".cache" / "numba").exists()
    assert printed(small, HOME=os.devnull, XDG_CACHE_HOME=os.devnull) == "17\n"
