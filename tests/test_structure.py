"""The rooms and their arrows: imports point downwards, and nothing imports an entry point."""

import ast
from pathlib import Path

import pytest

from plots import FIGURES, SPECIAL

ROOT = Path(__file__).resolve().parents[1]
# From the ground floor up; a room may import rooms of the floors below it, and itself.
FLOORS = [
    {"common", "quiet_interrupts"},
    {"torchrun", "instantiate", "hydra_words"},
    {"cli"},
    {"tasks"},
    {"models"},
    {"training"},
    {"evaluation"},
    {"config"},
    {"records"},
    {"sweeps"},
    {"plots", "hydra_plugins"},
    {"train", "evaluate", "sweep", "benchmarks", "cotcost"},
]
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}


def sources():
    for room in FLOOR:
        folder = ROOT / room
        yield from sorted(folder.rglob("*.py")) if folder.is_dir() else [ROOT / f"{room}.py"]


def imported(path):
    """Every module that the file imports, wherever in it the import stands."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room_of(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", sorted(sources()), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_downwards(path):
    own = room_of(path)
    for module in imported(path):
        room = module.split(".")[0]
        if room in FLOOR and room != own:
            assert FLOOR[room] < FLOOR[own], f"{path} imports {module}"


def test_every_room_has_its_floor():
    rooms = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    rooms |= {path.stem for path in ROOT.glob("*.py")}
    assert rooms - {"tests", "docs"} <= FLOOR.keys()


def modules():
    """Each module of the project, and those of the project that it imports."""
    names = {}
    for path in sources():
        parts = path.relative_to(ROOT).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return {
        name: {module for module in imported(path) if module in names and module != name}
        for name, path in names.items()
    }


def test_no_module_imports_itself_in_a_circle():
    graph, done = modules(), set()

    def visit(name, above):
        assert name not in above, " -> ".join([*above[above.index(name) :], name])
        if name not in done:
            for other in sorted(graph[name]):
                visit(other, [*above, name])
            done.add(name)

    for name in graph:
        visit(name, [])


def test_no_figure_imports_another_figure():
    figures = {f"plots.{name}" for name in (*FIGURES, *SPECIAL)}
    assert figures <= modules().keys()
    for name in figures:
        assert not modules()[name] & figures, name


PROGRAMS = [*(ROOT / f"{name}.py" for name in ("train", "sweep", "evaluate")),
            *ROOT.glob("*/__main__.py")]  # fmt: skip


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_program_first_sees_to_ctrl_c(path):
    first = ast.parse(path.read_text(encoding="utf-8")).body[2]  # after docstring and __future__
    assert ast.unparse(first) == "if __name__ == '__main__':\n    import quiet_interrupts"
