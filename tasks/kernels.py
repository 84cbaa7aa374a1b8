"""The decorator of compiled functions; its cache follows edits in the whole package.

Numba's cache checks only the function's own file: after an edit in `random_numbers.py`, a kernel
in `ed.py` that calls it would keep running the old code. So the cache folder is named after the
content of all files of the package.
"""

import contextlib
import functools
import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba


def kernel(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile `function` at its first call, without the GIL, and cache it; `options` as in
    `numba.njit`. The cache is in NUMBA_CACHE_DIR, the package's `__pycache__` or the home folder;
    if none is writable, every process compiles."""
    folder = _cache_folder(Path(function.__code__.co_filename).resolve().parent)
    usual_folder, numba.config.CACHE_DIR = numba.config.CACHE_DIR, folder
    try:
        return numba.njit(nogil=True, cache=bool(folder), **options)(function)
    finally:
        numba.config.CACHE_DIR = usual_folder


@functools.cache
def _cache_folder(package: Path) -> str:
    """The first writable folder, "" for none. (Numba's own fallback would lose the digest.)"""
    digest = hashlib.sha256()
    for path in sorted(package.glob("*.py")):
        digest.update(path.read_bytes())
    places: list[str | Path] = [package / "__pycache__", "~/.cache/cotcost"]
    if numba.config.CACHE_DIR:
        places = [numba.config.CACHE_DIR]
    for place in places:
        with contextlib.suppress(OSError, RuntimeError):
            folder = Path(place).expanduser() / f"kernels-{digest.hexdigest()[:16]}"
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
            return str(folder)
    return ""
