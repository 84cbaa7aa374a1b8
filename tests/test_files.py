from pathlib import Path

import pytest
import yaml

from common import (
    FULL,
    DiskFullError,
    UserError,
    clear_disk_errors,
    load_yaml,
    make_folder,
    require_writable,
)


@pytest.mark.parametrize("name", ["runs", "runs/cell", "runs/absent/record.json"])
def test_a_full_disk_is_named_by_the_folder_that_lies_on_it(tmp_path, monkeypatch, name):
    disk, home = tmp_path / "disk", tmp_path / "home"
    (disk / "cell").mkdir(parents=True)
    home.mkdir()
    (home / "runs").symlink_to(disk)
    monkeypatch.chdir(home)
    monkeypatch.setattr("shutil.disk_usage", lambda path: _Usage(path, disk))
    path = home.joinpath(name).relative_to(home)
    with (
        pytest.raises(DiskFullError, match=rf"^{disk}.*no space left.*0\.000 MB are free"),
        clear_disk_errors(path),
    ):
        raise OSError(FULL[0], "no space")


class _Usage:
    """Of the disk nothing is free, elsewhere a terabyte."""

    def __init__(self, path, disk):
        self.free = 0 if path.resolve().is_relative_to(disk) else 10**12


@pytest.mark.parametrize("check", [make_folder, require_writable])
@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/proc/x", "nothing can be made there (No such file or directory)"),
        ("/proc/x/y", "nothing can be made there (No such file or directory)"),
        ("/dev/null/x", "Not a directory; a file stands where a folder belongs, or the reverse"),
    ],
)
def test_a_folder_that_cannot_be_is_named_with_its_key(check, path, said):
    with pytest.raises(UserError) as caught:
        check(Path(path), "runs_dir")
    assert str(caught.value) == f"runs_dir: {path}: {said}"


def test_a_file_that_is_missing_elsewhere_is_not_blamed_on_the_path(tmp_path):
    with pytest.raises(FileNotFoundError), clear_disk_errors(tmp_path / "runs"):
        (tmp_path / "elsewhere" / "words.txt").read_text()


def test_a_folder_is_made_once_and_left_as_it_is(tmp_path):
    make_folder(tmp_path / "a" / "b", "data_dir")
    (tmp_path / "a" / "b" / "kept").touch()
    make_folder(tmp_path / "a" / "b", "data_dir")
    assert (tmp_path / "a" / "b" / "kept").exists()


BOMB = "a0: &a0 [x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 30)
)


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        "a: &a {b: *a}",
        "[" * 20_000 + "]" * 20_000,
        "a: " + "9" * 6_000,
        "a: 2020-99-99",
        "a: [",
    ],
    ids=["billion laughs", "itself", "deep", "digits", "date", "cut off"],
)
def test_yaml_of_anyone_is_plain_data_or_a_value_error(text):
    with pytest.raises(ValueError) as caught:
        load_yaml(text)
    assert "\n" not in str(caught.value)


def test_yaml_as_we_write_it_is_read():
    content = {"a": [1, {"b": [2.5, None, "*x", "&y"]}], "c": {}}
    assert load_yaml(yaml.safe_dump(content)) == content
