import pytest

from errors import DiskFullError
from files import FULL, clear_disk_errors


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
