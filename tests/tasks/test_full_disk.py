"""A real full disk: a tmpfs of two MiB. Needs the right to mount; skipped without it."""

import subprocess
import sys
from pathlib import Path

import pytest

from common import RunError
from tasks import store
from tasks.data import DataSpec, load_or_build
from tasks.lis import LIS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def small_disk(tmp_path):
    mount = tmp_path / "disk"
    mount.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(mount)],
        capture_output=True,
        check=False,
    )
    if done.returncode:
        pytest.skip("no right to mount a tmpfs here")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


def build(folder, train):
    command = ["build", "lis", "--size", "40", "--train", str(train), "--test", "50"]
    return subprocess.run(
        [sys.executable, "-m", "tasks", *command, "--validation", "50", "--dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_disk_that_fills_while_writing_leaves_nothing(small_disk, monkeypatch):
    monkeypatch.setattr(store, "require_space", lambda directory, expected_bytes: None)
    spec = DataSpec(train=100_000, validation=50, test=50, directory=str(small_disk))
    with pytest.raises(RunError, match="no space left on the disk"):
        load_or_build(LIS(40), spec, progress=False)
    assert not list(small_disk.rglob("*.arrow"))


def test_a_data_set_too_large_for_the_disk_is_one_line_and_leaves_nothing(small_disk):
    failed = build(small_disk, 100_000)
    assert failed.returncode in (1, 2)
    lines = [line for line in failed.stderr.splitlines() if line.strip()]
    assert len(lines) == 1 and "space" in lines[0] and str(small_disk) in lines[0]
    assert not list(small_disk.rglob("*.arrow"))
    assert build(small_disk, 1000).returncode == 0  # what fits is built afterwards
