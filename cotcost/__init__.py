"""One name for the project where it is installed: ``cotcost.tasks.lis`` is ``tasks.lis``.

The rooms (``tasks``, ``models``, ``training``, ...) import each other by these names.  They lie at
the top of a checkout, and in ``cotcost/rooms`` of a wheel.  Importing ``cotcost`` puts that folder
first on ``sys.path``, as ``python train.py`` does; without it an installation adds no name but
this one.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

_HERE = Path(__file__).resolve().parent
ROOT = _HERE / "rooms" if (_HERE / "rooms").is_dir() else _HERE.parent


class _Rooms(MetaPathFinder, Loader):
    """Finds ``cotcost.NAME`` as the module ``NAME``: one object under both names."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith(f"{__name__}."):
            return None
        own = name.removeprefix(f"{__name__}.")
        if own.partition(".")[0] not in _names():
            return None
        found = importlib.util.find_spec(own)
        return found and ModuleSpec(
            name, self, is_package=found.submodule_search_locations is not None
        )

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(spec.name.removeprefix(f"{__name__}."))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state  # the import system has put the alias there


def _names() -> set[str]:
    """Return the names of the rooms and of the modules beside them."""
    rooms = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    return (rooms | {path.stem for path in ROOT.glob("*.py")}) - {__name__}


def _require_free_names() -> None:
    """Raise `ImportError` where a module of another project bears the name of a room."""
    for name in sorted(_names() & sys.modules.keys()):
        file = getattr(sys.modules[name], "__file__", None)
        if file and not Path(file).resolve().is_relative_to(ROOT):
            raise ImportError(
                f"cotcost needs the module name {name!r}, which {file} has taken; "
                "import cotcost first, or run its commands (cotcost-train, ...) on their own"
            )


_require_free_names()
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))
sys.meta_path.insert(0, _Rooms())  # before the one that would load tasks/lis.py a second time
