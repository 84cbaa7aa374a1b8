"""Files that are whole or absent: written aside, flushed, renamed."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from errors import RunError, UserError


@contextlib.contextmanager
def clear_disk_errors(path: Path) -> Iterator[None]:
    """Turn the operating system's word about ``path`` into one line that names the remedy."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise RunError(f"{path}: no space left on the disk; free some and run again") from None
        if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
            raise UserError(f"{path}: cannot be written ({error.strerror})") from None
        if error.errno in (errno.ENOTDIR, errno.EEXIST, errno.EISDIR):
            raise UserError(
                f"{path}: {error.strerror}; a file stands where a folder belongs, or the reverse"
            ) from None
        raise


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, then rename it to ``path``.

    A reader sees the old content or the new, never a part; a kill leaves at most a file whose
    name starts with a dot and ends in ``.tmp``, which nothing reads.
    """
    with clear_disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        os.close(handle)
        temporary = Path(name)
        try:
            write(temporary)
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
            temporary.chmod(0o644)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def write_text(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` atomically."""
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_json(path: Path, content: Any, indent: int | None = 1) -> None:
    """Write ``content`` to ``path`` as JSON, atomically."""
    write_text(path, json.dumps(content, indent=indent) + "\n")


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of the file's content, 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
