"""The decorator of compiled functions, whose cache notices every edit in their package.

Numba's own cache looks at the file of the function alone: after an edit in ``ed.py`` a kernel of
``ed_local.py`` that calls it would go on running the old code, and write wrong data.  So the
cache folder is named after the content of all files of the package; constants that are compiled in
stand in files without kernels, too.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba


def kernel(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile ``function`` at its first call, without the interpreter lock, and cache it.

    ``options`` are those of `numba.njit`.  The cache lies in NUMBA_CACHE_DIR where that is set,
    else in the package's ``__pycache__`` or the home folder.  Where none can be written, every
    process compiles anew.
    """
    folder = _cache_folder(Path(function.__code__.co_filename).resolve().parent)
    usual_folder, numba.config.CACHE_DIR = numba.config.CACHE_DIR, folder
    try:
        compiled = numba.njit(nogil=True, cache=bool(folder), **options)(function)
    finally:
        numba.config.CACHE_DIR = usual_folder
    load_or_compile = compiled.compile

    def compile(signature: Any) -> Any:
        try:
            return load_or_compile(signature)
        except Exception:  # an unreadable cache raises anything; a real error comes again
            shutil.rmtree(folder, ignore_errors=True)
            return load_or_compile(signature)

    compiled.compile = compile
    return compiled


@functools.cache
def _cache_folder(package: Path) -> str:
    """Return the first folder that can be written, "" for none.

    Numba's own fallback to the home folder would drop the folder's name.
    """
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
