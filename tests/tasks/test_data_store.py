"""The store under mishap: damage, two builders at once, a killed builder, a full disk."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from common import RunError, UserError
from tasks import store
from tasks.arithmetic import Arithmetic
from tasks.data import DataSets, DataSpec, load_or_build

ROOT = Path(__file__).resolve().parents[2]


def get(directory: Path) -> DataSets:
    spec = DataSpec(3000, 100, 200, directory=str(directory))
    return load_or_build(Arithmetic(4), spec, progress=False)


def arrow(path: Path, split: str = "train") -> Path:
    return next((path / split).glob("*.arrow"))


def truncate(path: Path) -> None:
    content = arrow(path).read_bytes()
    arrow(path).write_bytes(content[: len(content) // 2])


def alter(path: Path) -> None:
    content = bytearray(arrow(path).read_bytes())
    content[len(content) // 2] ^= 1
    arrow(path).write_bytes(content)


def lie(path: Path) -> None:
    meta = json.loads((path / "meta.json").read_text())
    (path / "meta.json").write_text(json.dumps({**meta, "fingerprint": "0" * 64}))


def swap(path: Path) -> None:
    (path / "test").rename(path / "aside")
    (path / "validation").rename(path / "test")
    (path / "aside").rename(path / "validation")


DAMAGE: dict[str, Callable[[Path], object]] = {
    "truncated": truncate,
    "altered": alter,
    "empty": lambda path: arrow(path, "test").write_bytes(b""),
    "missing": lambda path: arrow(path, "validation").unlink(),
    "swapped": swap,
    "wrong fingerprint": lie,
    "no meta": lambda path: (path / "meta.json").unlink(),
    "broken meta": lambda path: (path / "meta.json").write_text("{"),
    "broken state": lambda path: (path / "train" / "state.json").write_text("[]"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_noticed_and_repaired_with_one_line(damage: str, tmp_path: Path, capsys) -> None:
    first = get(tmp_path)
    DAMAGE[damage](first.path)
    capsys.readouterr()
    again = get(tmp_path)
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert str(first.path) in said
    assert "building it again" in said
    assert again.samples_per_second is not None
    assert again.fingerprint == first.fingerprint == store.fingerprint(store.load(first.path)[0])
    assert get(tmp_path).samples_per_second is None
    assert capsys.readouterr().err == ""
    assert not list(tmp_path.glob(".building-*"))


def test_the_folders_of_two_seeds_are_told_apart(tmp_path: Path, capsys) -> None:
    """Each is whole, with its own fingerprint; only the name of the folder says which it is."""
    specs = [DataSpec(300, 10, 20, seed, directory=str(tmp_path)) for seed in (0, 1)]
    one, other = (load_or_build(Arithmetic(4), spec, progress=False) for spec in specs)
    one.path.rename(tmp_path / "aside")
    other.path.rename(one.path)
    (tmp_path / "aside").rename(other.path)
    capsys.readouterr()
    again = load_or_build(Arithmetic(4), specs[0], progress=False)
    assert again.fingerprint == one.fingerprint != other.fingerprint
    [line] = capsys.readouterr().err.splitlines()
    assert f"it is {other.path.name}-train, not {one.path.name}-train" in line


BUILDER = """
import sys, time
from tasks import data, store
from tasks.arithmetic import Arithmetic
original = store._save_split
def slow(sequences, path, key):
    original(sequences, path, key)
    print("saved", flush=True)
    time.sleep(float(sys.argv[2]))
store._save_split = slow
spec = data.DataSpec(3000, 100, 200, directory=sys.argv[1])
sets = data.load_or_build(Arithmetic(4), spec, progress=False)
print(sets.fingerprint, sets.samples_per_second is None)
"""


def builder(directory: Path, seconds_a_split: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", BUILDER, str(directory), str(seconds_a_split)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def test_two_processes_build_once(tmp_path: Path) -> None:
    both = [builder(tmp_path, 1.0), builder(tmp_path, 1.0)]
    outputs = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert sorted(out.count("saved") for out, _ in outputs) == [0, 3]
    fingerprints = {out.splitlines()[-1].split()[0] for out, _ in outputs}
    assert fingerprints == {get(tmp_path).fingerprint}
    assert sum("waiting" in err for _, err in outputs) == 1


def test_a_killed_builder_leaves_nothing_that_counts(tmp_path: Path) -> None:
    process = builder(tmp_path, 60)
    assert process.stdout is not None
    assert process.stdout.readline() == "saved\n"
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=20)
    assert len(list(tmp_path.glob(".building-*"))) == 1
    assert [path for path in tmp_path.iterdir() if not path.name.startswith(".")] == []
    other = tmp_path / ".building-0123456789abcdef-1"
    other.mkdir()  # another key's leftover
    begun = time.monotonic()
    built = get(tmp_path)
    assert time.monotonic() - begun < 20
    assert built.samples_per_second is not None
    assert not list(tmp_path.glob(".building-*"))


def test_leftovers_of_a_living_builder_of_another_key_stay(tmp_path: Path) -> None:
    from filelock import FileLock

    folder = tmp_path / ".building-0123456789abcdef-1"
    folder.mkdir()
    with FileLock(str(tmp_path / ".0123456789abcdef.lock")):
        get(tmp_path)
        assert folder.is_dir()


def test_too_little_space_is_said_before_anything_is_built(tmp_path: Path, monkeypatch) -> None:
    usage = store.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(store.shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(RunError, match=r"needs [0-9.,]+ MB, 0.001 MB are free") as caught:
        get(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_a_disk_that_fills_up_is_one_line_and_leaves_nothing(tmp_path: Path, monkeypatch) -> None:
    original = store._save_split

    def full(sequences, path, key):
        original(sequences, path, key)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(store, "_save_split", full)
    with pytest.raises(RunError, match=r"no space left on the disk: .* MB are free") as caught:
        get(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file"):
        get(tmp_path / "file" / "data")
