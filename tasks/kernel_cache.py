"""The decorator of all compiled functions, whose cache notices every change.

Numba's own cache looks at the file of the function alone: after an edit in ``ed.py`` a kernel of
``ed_local.py`` that calls it would go on running the old code, and write wrong data.  So the
cache folder is named after the content of all files that hold kernels.
"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

_FOLDER = Path(__file__).resolve().parent


def _cache_folder() -> str | None:
    """Return the first of our own folder and the user's that can be written, None without any.

    Numba's own way on from a folder that cannot be written forgets its name.
    """
    digest = hashlib.sha256()
    for path in sorted(_FOLDER.glob("*.py")):
        source = path.read_bytes()
        if b"\n@kernel\n" in source:
            digest.update(source)
    name = f"kernels-{digest.hexdigest()[:16]}"
    folders = [_FOLDER / "__pycache__" / name]
    with contextlib.suppress(RuntimeError):  # nobody's home
        folders.append(Path.home() / ".cache" / "cotcost" / name)
    return next((str(folder) for folder in folders if _can_write(folder)), None)


def _can_write(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


_CACHE_FOLDER = _cache_folder()


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile ``function`` at its first call, without the interpreter lock, and cache it.

    Where no folder can be written, every process compiles it anew.
    """
    if _CACHE_FOLDER is None:
        return numba.njit(nogil=True)(function)
    usual = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = _CACHE_FOLDER
    try:
        return numba.njit(nogil=True, cache=True)(function)
    finally:
        numba.config.CACHE_DIR = usual
