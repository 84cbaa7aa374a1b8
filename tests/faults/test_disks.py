"""Full disks, and two sweeps at once."""

import os
import subprocess

import pytest
from small_sweep import SmallSweep

root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
LEVELS = (0, 8_192, 16_384, 32_768, 65_536, 131_072)  # bytes left


@pytest.fixture
def small_disk(tmp_path):
    """A disk of a few megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", place], check=True)
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


@root
@pytest.mark.parametrize("part", ["outputs", "runs"])
def test_a_full_disk_loses_no_results(tmp_path, small_disk, part, undisturbed):
    sweep = SmallSweep(tmp_path / "sweep")
    (small_disk / part).mkdir()
    (tmp_path / "sweep" / part).symlink_to(small_disk / part)
    free = os.statvfs(small_disk).f_bavail * 4096
    for left in LEVELS:
        (small_disk / "ballast").write_bytes(b"0" * (free - left))
        full = sweep.run()
        (small_disk / "ballast").unlink()
        if full.returncode == 0:  # enough was written by earlier runs
            break
        assert {record["row"]["status"] for record in sweep.records()} <= {"done", "unfinished"}
    done = sweep.run()
    assert done.returncode == 0, done.stderr
    sweep.check_equal(undisturbed)


def test_two_sweeps_at_once(tmp_path, undisturbed):
    sweep = SmallSweep(tmp_path)
    for process in [sweep.start() for _ in range(2)]:
        process.wait(300)
    assert sweep.run().returncode == 0
    sweep.check_equal(undisturbed)
