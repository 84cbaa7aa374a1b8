"""Full and read-only disks, clocks that jump, damaged and foreign files, two sweeps at once."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from records.sealed import sealed
from small_sweep import CELLS, SmallSweep

root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
LEVELS = (0, 4_096, 8_192, 12_288, 16_384, 24_576, 32_768, 49_152, 65_536, 98_304, 131_072)
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")


@pytest.fixture
def small_disk(tmp_path):
    """A disk of a few megabytes; ``remount(options)`` changes it."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", place], check=True)
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def one_line(done):
    lines = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert "Traceback" not in done.stderr + done.stdout
    assert lines, done.stderr
    return lines[-1]


@root
@pytest.mark.parametrize("part", ["results", "runs"])
def test_a_full_disk_ends_with_one_line_and_then_goes_on(
    tmp_path, small_disk, part, undisturbed, count
):
    sweep = SmallSweep(tmp_path / "sweep")
    (small_disk / part).mkdir()
    (tmp_path / "sweep" / part).symlink_to(small_disk / part)
    free = os.statvfs(small_disk).f_bavail * 4096
    for left in LEVELS:
        (small_disk / "ballast").write_bytes(b"0" * (free - left))
        full = sweep.run()
        (small_disk / "ballast").unlink()
        if full.returncode == 0:  # what was written before sufficed
            break
        assert full.returncode == 1
        told = full.stderr + full.stdout
        assert "no space left" in told and str(small_disk) in told, (left, told)
        assert "Traceback" not in told and "inline_container" not in told
        assert {record["status"] for record in sweep.records()} <= {"done", "unfinished"}
    done = sweep.run()
    assert done.returncode == 0, done.stderr
    sweep.check_equal(undisturbed)
    count(f"sweeps onto a disk with {LEVELS} bytes left, one with room again; table equal")


@root
@pytest.mark.parametrize("part", ["results", "runs"])
def test_a_read_only_folder_is_said_before_anything_starts(tmp_path, small_disk, part, undisturbed):
    sweep = SmallSweep(tmp_path / "sweep")
    (small_disk / part).mkdir()
    (tmp_path / "sweep" / part).symlink_to(small_disk / part)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    refused = sweep.run()
    assert refused.returncode == 2
    assert part in one_line(refused) and "cannot be written" in one_line(refused)
    assert not list(sweep.folder.glob("runs/*/config.yaml"))
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    assert sweep.run().returncode == 0
    sweep.check_equal(undisturbed)


def test_two_sweeps_at_once(tmp_path, undisturbed, count):
    sweep = SmallSweep(tmp_path)
    both = [sweep.start() for _ in range(2)]
    for process in both:
        process.wait(300)
    assert sweep.run().returncode == 0
    sweep.check_equal(undisturbed)
    log = (tmp_path / "sweep.log").read_text()
    count(f"two sweeps, {CELLS} cells, 'left to it' {log.count('left to it')} times; table equal")


@pytest.mark.skipif(not FAKETIME.exists(), reason="needs: apt-get install -y libfaketime")
def test_a_clock_that_jumps(tmp_path, undisturbed, count):
    """Half of the cells in 2040, the rest in 2001, a retry today."""
    halves = [SmallSweep(tmp_path, only=f"only.dim={dim}") for dim in (8, 16)]
    for sweep, shift in zip(halves, ("+13y", "-25y"), strict=True):
        done = sweep.run(
            "hydra.launcher.jobs=1",
            LD_PRELOAD=str(FAKETIME),
            FAKETIME=shift,
            FAKETIME_DONT_FAKE_MONOTONIC="1",
        )
        assert done.returncode == 0, done.stderr
    years = {record["finished_at"][:4] for record in halves[0].records()}
    assert len(years) == 2
    whole = SmallSweep(tmp_path)
    done = whole.run()
    assert done.returncode == 0 and "cells to run" not in done.stdout
    whole.check_equal(undisturbed)
    count(f"cells finished in {', '.join(sorted(years))}; none run again, table equal")


def _truncated(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _empty(path):
    path.write_bytes(b"")


def _of_another_version(path):
    content = torch.load(path, weights_only=True)
    torch.save({**content, "format": 99}, path)


@pytest.mark.parametrize("spoil", [_truncated, _empty, _of_another_version])
def test_a_spoilt_checkpoint_costs_time_only(tmp_path, undisturbed, spoil):
    sweep = SmallSweep(tmp_path)
    assert sweep.run("time_limit_seconds=0.5").returncode == 1
    checkpoints = sorted(tmp_path.glob("runs/*/checkpoint.pt"))
    assert len(checkpoints) == CELLS
    assert {record["status"] for record in sweep.records()} == {"unfinished"}
    for path in checkpoints:
        spoil(path)
    done = sweep.run()
    assert done.returncode == 0, done.stderr
    sweep.check_equal(undisturbed)


@pytest.mark.parametrize(
    "change",
    [
        {"status": "perfect"},
        {"finished_at": None},
        {"cell": "ffffffffffff"},
        {"layout": 2, "result": {}, "status": None},
    ],
    ids=str,
)
def test_a_record_from_another_version_is_measured_again(tmp_path, undisturbed, change):
    sweep = SmallSweep(tmp_path)
    assert sweep.run().returncode == 0
    shutil.rmtree(tmp_path / "results")
    path = sorted(tmp_path.glob("runs/*/record.json"))[0]
    path.write_text(json.dumps(sealed({**json.loads(path.read_text()), **change})))
    done = sweep.run()
    assert done.returncode == 0, done.stderr
    assert f"1 of {CELLS} cells to run" in done.stdout
    sweep.check_equal(undisturbed)


def test_a_record_with_more_in_it_is_read(tmp_path, undisturbed):
    sweep = SmallSweep(tmp_path)
    assert sweep.run().returncode == 0
    shutil.rmtree(tmp_path / "results")
    for path in tmp_path.glob("runs/*/record.json"):
        path.write_text(
            json.dumps(sealed({**json.loads(path.read_text()), "from_the_future": [1]}))
        )
    done = sweep.run()
    assert done.returncode == 0 and "cells to run" not in done.stdout
    sweep.check_equal(undisturbed)
