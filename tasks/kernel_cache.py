"""The decorator of all compiled functions, whose cache notices every change.

Numba's own cache looks at the file of the function alone: after an edit in ``ed.py`` a kernel of
``ed_local.py`` that calls it would go on running the old code, and write wrong data.  So the
cache folder is named after the content of all files that hold kernels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

_FOLDER = Path(__file__).resolve().parent


def _cache_folder() -> str:
    digest = hashlib.sha256()
    for path in sorted(_FOLDER.glob("*.py")):
        source = path.read_bytes()
        if b"\n@kernel\n" in source:
            digest.update(source)
    return str(_FOLDER / "__pycache__" / f"kernels-{digest.hexdigest()[:16]}")


_CACHE_FOLDER = _cache_folder()


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile ``function`` at its first call, without the interpreter lock, and cache it.

    Where the folder cannot be written, numba falls back to one of the user's.
    """
    usual = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = _CACHE_FOLDER
    try:
        return numba.njit(nogil=True, cache=True)(function)
    finally:
        numba.config.CACHE_DIR = usual
