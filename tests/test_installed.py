"""The wheel: one name in site-packages, with all rooms and configurations below it."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = "tasks models training evaluation config records sweeps plots hydra_plugins".split()
SUFFIXES = (".py", ".yaml", ".html")
COMMAND = """
import sys
import cotcost.tasks.lis as alias
import tasks.lis as own
assert alias is own and alias.__spec__.name == "tasks.lis" and sys.modules["cotcost.tasks"]
assert "site" in own.__file__
from cotcost.commands import train
train()
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The wheel's content, as pip lays it into site-packages."""
    folder = tmp_path_factory.mktemp("wheel")
    (folder / "source").mkdir()
    left_out = {"tests", "results", "runs", "data", "wandb", "build"}
    for path in ROOT.iterdir():
        if path.is_dir() and path.name not in left_out and path.name[0] != ".":
            shutil.copytree(path, folder / "source" / path.name)
        elif path.is_file():
            shutil.copy(path, folder / "source")
    build = "from setuptools import build_meta; build_meta.build_wheel('..')"
    done = subprocess.run(
        [sys.executable, "-c", build],
        cwd=folder / "source", capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "site")
    return folder / "site"


def test_an_installation_adds_one_name_and_holds_everything_that_runs(site):
    (name,) = [path.name for path in site.iterdir() if path.suffix != ".dist-info"]
    assert name == "cotcost"
    sources = [*ROOT.glob("*.py"), ROOT / "plots/report_page.html"]
    sources += [path for room in [*ROOMS, "conf"] for path in (ROOT / room).rglob("*.[py]*")]
    inside = site / "cotcost/rooms"
    held = {path.relative_to(inside) for path in inside.rglob("*.*") if path.suffix in SUFFIXES}
    wanted = {path.relative_to(ROOT) for path in sources if path.suffix in SUFFIXES}
    assert held == wanted and len(wanted) > 100


def test_each_console_script_names_a_function_that_runs_a_file_of_the_wheel(site):
    (listed,) = site.glob("*.dist-info/entry_points.txt")
    scripts = dict(line.split(" = ") for line in listed.read_text().splitlines() if " = " in line)
    names = ["evaluate", "plots", "sweep", "tasks", "train"]
    assert scripts == {f"cotcost-{name}": f"cotcost.commands:{name}" for name in names}
    for name in names:
        there = [f"{name}.py", f"{name}/__main__.py"]
        assert any((site / "cotcost/rooms" / path).exists() for path in there), name


def test_a_cell_runs_from_any_folder_and_bears_no_commit_of_anothers_repository(site, tmp_path):
    short = "recipe.steps=2 recipe.validate_every=2 data.train=100 data.validation=10 data.test=10"
    cell = ["task.size=2", "model.dim=8", "logger=none", *short.split()]
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *cell],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, "PYTHONPATH": str(site)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    row = pd.read_csv(tmp_path / "results/manual/results.csv").iloc[0]
    assert row["status"] == "done" and row["dim"] == 8 and pd.isna(row["commit"])


def test_a_module_of_a_rooms_name_from_elsewhere_is_told_in_one_line(site, tmp_path):
    (tmp_path / "config.py").write_text("")
    done = subprocess.run(
        [sys.executable, "-c", "import config, cotcost"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100,
        env={**os.environ, "PYTHONPATH": str(site)},
    )  # fmt: skip
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: cotcost needs the module name 'config'")
    assert str(tmp_path / "config.py") in last
