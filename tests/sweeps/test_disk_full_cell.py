"""A full disk leaves a cell unfinished; the same command goes on once there is room."""

import errno
import os
import subprocess

import pytest
from commands import TINY

from common import DiskFullError
from config.compose import compose_plain
from config.schema import validate_cell
from sweeps.cell import run_cell
from training.checkpoint import save_checkpoint


@pytest.mark.parametrize("number", [0, 1, 2, 3, 4])
def test_the_cell_is_unfinished_and_goes_on(tmp_path, monkeypatch, number):
    """Whichever of the first files finds no room: configuration, heartbeat, checkpoint, record."""
    monkeypatch.chdir(tmp_path)
    config = validate_cell(compose_plain("train", TINY))
    replace, seen = os.fsync, []

    def full(descriptor):
        seen.append(descriptor)
        if len(seen) == number + 1:
            raise OSError(errno.ENOSPC, "no space left on device")
        return replace(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(common.os, "fsync", full)
        try:
            record = run_cell(config)
        except DiskFullError as error:
            told = str(error)
        else:
            assert record["status"] == "unfinished"
            told = record["reason"]
    assert "runs/" in told and "no space left" in told and " MB are free" in told
    assert run_cell(config)["status"] == "done"


def test_torchs_own_words_for_a_full_disk_are_not_heard(tmp_path):
    """A tmpfs of a few pages: the real thing. Needs the right to mount."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("no right to mount a tmpfs here")
    try:
        content = {"model": {}, "optimizer": [], "random": None, "state": "x" * 200_000}
        with pytest.raises(DiskFullError, match=r"checkpoint.pt needs 0\.2\d\d MB, 0\.0\d\d MB"):
            save_checkpoint(place / "w" / "checkpoint.pt", content)
        assert not list(place.glob("w/*"))
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)
