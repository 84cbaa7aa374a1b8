"""What every package uses: the two errors that people see, and files that are whole or absent."""

from __future__ import annotations

import contextlib
import difflib
import errno
import hashlib
import importlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml


class UserError(Exception):
    """A bad call: a wrong value, an unknown key, a missing or damaged file. Exit status 2."""


class RunError(Exception):
    """A run that failed: divergence, a full disk, a lost worker. Exit status 1."""


class DiskFullError(RunError):
    """A file found no room. What was being done is unfinished: the same command goes on with it."""


def did_you_mean(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Return "; did you mean ...?" with the known name most like ``name``, "" where none is."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {prefix}{near[0]}?" if near else ""


def explain(finding: Mapping[str, Any], *above: str) -> str:
    """Return what pydantic found wrong, in one line: key, value, what would be right.

    ``above`` are the keys above those that it names.
    """
    location = [*above, *(str(part) for part in finding["loc"] if part != "machine")]
    if location and location[-1] in ("int", "float", "str"):  # a branch of a union
        location.pop()
    key, given = ".".join(location), finding["input"]
    if finding["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"unknown key {key}"
    if finding["type"] in ("missing", "missing_argument"):
        return f"missing key {key}"
    if finding["type"] == "dict_type":
        return f"{key}={given!r}: has keys of its own; write {key}.KEY=VALUE"
    message = finding["msg"].removeprefix("Value error, ")
    message = re.sub(r"^\w+ should", "must", message[0].lower() + message[1:])
    return f"{key}={given!r}: {message}"


DEEPEST_YAML = 50  # levels; a configuration has six
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def read_regular(path: str | Path) -> bytes:
    """Return a file's content; `OSError` for what is no file, such as a device without end."""
    require_regular(path)
    return Path(path).read_bytes()


def file_digest(path: str | Path, key: str = "") -> str:
    """Return the SHA-256 of a file that a person names; `UserError`, with ``key``, without one."""
    try:
        return hashlib.sha256(read_regular(path)).hexdigest()
    except OSError as error:
        raise UserError(f"{key}{path}: cannot be read ({error.strerror})") from None


def require_regular(path: str | Path) -> None:
    """Raise `OSError` for what is no file: it may be without end, or keep its reader waiting."""
    if not Path(path).is_file() and Path(path).exists():
        raise OSError(errno.EINVAL, "it is no regular file", str(path))


@contextlib.contextmanager
def clear_disk_errors(path: Path, size: int | None = None, key: str = "") -> Iterator[None]:
    """Turn the operating system's word about ``path`` into one line that names the remedy.

    ``size`` are the bytes that it needs, where they are known; ``key`` is the setting that names
    it, where one does.
    """
    where = f"{key}: {path}" if key else str(path)
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise DiskFullError(no_room(path, size)) from None
        if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
            raise UserError(f"{where}: cannot be written ({error.strerror})") from None
        if error.errno in (errno.ENOTDIR, errno.EEXIST, errno.EISDIR):
            raise UserError(
                f"{where}: {error.strerror}; a file stands where a folder belongs, or the reverse"
            ) from None
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL):
            raise UserError(f"{where[:100]}: no possible path ({error.strerror})") from None
        if error.errno == errno.ENOENT and _on_the_way(error, path):
            raise UserError(f"{where}: nothing can be made there ({error.strerror})") from None
        raise


def _on_the_way(error: OSError, path: Path) -> bool:
    """Tell whether what could not be made lies on the way to ``path``, as in /proc."""
    here = path.absolute()
    return bool(error.filename) and Path(error.filename).absolute().parent in (here, *here.parents)


def make_folder(folder: Path, key: str) -> None:
    """Make ``folder``, which the setting ``key`` names, unless it is there; `UserError`, in one
    line, where that cannot be."""
    with clear_disk_errors(folder, key=key):
        folder.mkdir(parents=True, exist_ok=True)


def require_writable(folder: Path, key: str = "") -> None:
    """Raise one line now where ``folder`` could not be written or made; nothing is left there.

    ``key`` is the setting that names it.
    """
    there = next(path for path in (folder, *folder.parents) if path.exists())
    with clear_disk_errors(folder, key=key), tempfile.TemporaryFile(dir=there) as probe:
        probe.write(b"0" * 4096)


def no_room(path: Path, size: int | None = None) -> str:
    """Return the line that says which disk is full, and how much ``path`` needs.

    The folder is named without symbolic links, since it is their end that has a disk.
    """
    needs = "" if size is None else f"{path.name} needs {size / 1e6:,.3f} MB, "
    full = next(place for place in (path, *path.absolute().parents) if place.is_dir()).resolve()
    try:
        free = f"{shutil.disk_usage(full).free / 1e6:,.3f} MB are free; "
    except OSError:
        free = ""
    return (
        f"{full}: no space left on the disk: {needs}{free}make room, and the same command goes on"
    )


def write_atomically(path: Path, write: Callable[[Path], object], size: int | None = None) -> None:
    """Let ``write`` fill a temporary file beside ``path``, then rename it to ``path``.

    A reader sees the old content or the new, never a part; a kill leaves at most a file whose
    name starts with a dot and ends in ``.tmp``, which nothing reads.  ``size`` in bytes, where it
    is known, is named when the disk is full.
    """
    with clear_disk_errors(path, size):
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


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Write ``content`` to ``path`` atomically."""
    write_atomically(path, lambda temporary: temporary.write_bytes(content), len(content))


def write_text(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` atomically."""
    write_bytes(path, text.encode())


def write_json(path: Path, content: Any, indent: int | None = 1) -> None:
    """Write ``content`` to ``path`` as JSON, atomically."""
    write_text(path, json.dumps(content, indent=indent) + "\n")


def remove_stale(folder: Path, seconds: float = 3600.0) -> None:
    """Remove what a killed process was writing into ``folder`` more than ``seconds`` ago."""
    for leftover in folder.glob(".*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - leftover.stat().st_mtime > seconds:
                leftover.unlink()


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of the file's content, 64 hexadecimal digits."""
    require_regular(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of plain data as JSON, whatever the order of its keys."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def load_yaml(text: str) -> Any:
    """Return the plain data of ``text``, which may be anyone's.

    Raises ValueError for what is no YAML, for aliases, a few lines of which stand for gigabytes or
    for themselves, and for what is nested deeper than any configuration.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    depth = 0
    try:
        for event in yaml.parse(text, loader):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if isinstance(event, yaml.AliasEvent) or depth > DEEPEST_YAML:
                raise ValueError("it has aliases, or is nested too deep")
        return yaml.load(text, loader)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None


def locate(target: str, key: str) -> Any:
    """Return the class or function at a dotted path such as ``tasks.lis.LIS``.

    Raises `UserError` naming ``key``, where the path was written, when there is no such module or
    name in it. An error while the module runs is raised as it is.
    """
    module_name, _, name = str(target).rpartition(".")
    try:
        found = importlib.import_module(module_name)
    except (ModuleNotFoundError, ValueError) as error:
        missing = getattr(error, "name", None) or module_name
        if isinstance(error, ModuleNotFoundError) and not module_name.startswith(missing):
            raise
        raise UserError(f"{key}={target}: no module {missing!r} (is it on PYTHONPATH?)") from None
    if not hasattr(found, name):
        near = did_you_mean(name, vars(found), f"{module_name}.")
        raise UserError(f"{key}={target}: {module_name} has no {name!r}{near}")
    return getattr(found, name)
