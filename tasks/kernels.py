"""The decorator of all compiled functions, whose cache notices every change in their room.

Numba's own cache looks at the file of the function alone: after an edit in ``ed.py`` a kernel of
``ed_local.py`` that calls it would go on running the old code, and write wrong data.  So the
cache folder is named after the content of all files of the room (the folder of the package):
constants that are compiled in stand in files without kernels, too.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba


def kernel(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile ``function`` at its first call, without the interpreter lock, and cache it.

    ``options`` are those of `numba.njit`.  Where no folder can be written, every process compiles
    it anew.
    """
    compiled = functools.partial(numba.njit, nogil=True, **options)
    folder = _cache_folder(Path(function.__code__.co_filename).resolve().parent)
    if folder is None:
        return compiled()(function)
    usual = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = folder
    try:
        return compiled(cache=True)(function)
    finally:
        numba.config.CACHE_DIR = usual


@functools.cache
def _cache_folder(room: Path) -> str | None:
    """Return the first of the room's own folder and the user's that can be written, else None.

    Numba's own way on from a folder that cannot be written forgets its name.
    """
    digest = hashlib.sha256()
    for path in sorted(room.glob("*.py")):
        digest.update(path.read_bytes())
    name = f"kernels-{digest.hexdigest()[:16]}"
    folders = [room / "__pycache__" / name]
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
