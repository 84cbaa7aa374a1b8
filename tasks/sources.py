"""The source that a class of yours depends on, so that a change of it changes a run's id."""

import ast
import functools
import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from common import sha256_of

# Our modules: run ids omit their source (`RESULTS_VERSION` and `generator_version` stand for it).
OURS = (
    "benchmarks", "common", "cotcost", "evaluate", "evaluation", "experiments", "hydra_plugins",
    "models", "plots", "sweep", "tasks", "train", "training",
)  # fmt: skip


def sources(cls: Any) -> dict[str, str]:
    """Digests by module: of `cls`, its packages and all they import, directly or not, from the
    folder that holds its top-level package (if installed: from that package). TypeError or OSError
    if it has no file."""
    path = Path(inspect.getfile(cls))
    root = path.parents[cls.__module__.count(".") + (path.name == "__init__.py")]
    installed = any(root.glob("*.dist-info"))
    own = root / cls.__module__.partition(".")[0] if installed else root
    found, todo = {cls.__module__: path}, [path]
    while todo:
        file = todo.pop()
        imported = _imports(file.read_bytes(), file.relative_to(root).parent.parts)
        for name in _with_packages([*imported, cls.__module__]):
            place = root.joinpath(*name.split("."))
            for used in (place.with_suffix(".py"), place / "__init__.py"):
                new = name not in found and name.partition(".")[0] not in OURS
                if new and used.is_relative_to(own) and used.is_file():
                    found[name] = used
                    todo.append(used)
    return {name: sha256_of(file)[:16] for name, file in found.items()}


def _with_packages(names: Iterable[str]) -> set[str]:
    """The modules and the packages that hold them, whose `__init__` runs as well."""
    parts = [name.split(".") for name in names]
    return {".".join(part[:end]) for part in parts for end in range(1, len(part) + 1)}


@functools.cache
def _imports(source: bytes, package: tuple[str, ...]) -> set[str]:
    """The modules that Python source in `package` imports, and what it takes from them."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {item.name for item in node.names}
        elif isinstance(node, ast.ImportFrom):
            parts = package[: len(package) + 1 - node.level] if node.level else ()
            base = ".".join([*parts, *filter(None, [node.module])])
            found |= {base, *(f"{base}.{item.name}" for item in node.names)}
    return found
