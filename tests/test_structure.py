"""Packages import only from lower layers, and nothing imports an entry point."""

import ast
import re
import tomllib

import pytest
from packaging.requirements import Requirement
from processes import ROOT

# From bottom to top; a package may import lower layers and itself.
ORDER = [
    {"common"}, {"tasks"}, {"models"}, {"training"}, {"evaluation"}, {"hydra_plugins"},
    {"experiments"}, {"plots"}, {"cotcost"}, {"benchmarks"}, {"train", "evaluate", "sweep"},
]  # fmt: skip
FLOOR = {name: number for number, names in enumerate(ORDER) for name in names}


def sources():
    for name in FLOOR:
        folder = ROOT / name
        yield from sorted(folder.rglob("*.py")) if folder.is_dir() else [ROOT / f"{name}.py"]


def imported(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield node.module or ""


@pytest.mark.parametrize("path", sorted(sources()), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_follow_layers_and_avoid_private_modules(path):
    own = path.relative_to(ROOT).parts[0].removesuffix(".py")
    for module in imported(path):
        package, *parts = module.split(".")
        if package in FLOOR and package != own and not module.startswith("hydra_plugins.hydra_"):
            assert FLOOR[package] < FLOOR[own], f"{path} imports {module}"
        private = [part for part in parts if part.startswith("_") and not part.endswith("__")]
        assert not private, f"{path} imports {module}"


def test_every_package_has_a_layer():
    found = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests"}
    assert found | {path.stem for path in ROOT.glob("*.py")} <= FLOOR.keys()


def test_version_bounds_allow_the_pins_and_exclude_broken_releases():
    """Releases 3.21.0 to 3.29.4 of filelock delete lock files (tox-dev/filelock#574)."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bounds = {need.name: need.specifier for need in map(Requirement, project["dependencies"])}
    lines = (ROOT / "constraints.txt").read_text().lower().splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line)
    assert [name for name, bound in bounds.items() if pins[name] not in bound] == []
    packages = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    locked = {(package["name"], package.get("version")) for package in packages}
    assert {(re.sub("[-_.]+", "-", name), pin) for name, pin in pins.items()} <= locked
    assert ("torch", f"{pins['torch']}+cpu") in locked  # uv sync --extra cpu
    assert not any(bounds["filelock"].filter(["3.21.0", "3.21.2", "3.29.0", "3.29.4"]))
    assert "2.14.0" not in bounds["torch"] and "1.4.0" not in bounds["hydra-core"]
