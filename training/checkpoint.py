"""Checkpoints: the whole state of a training run, whole on disk or absent.

A checkpoint holds a digest of its content, since the archive that torch writes is read without a
check, and the name of the folder that it was written for, which is the name of its weights.
"""

from __future__ import annotations

import hashlib
import io
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from common import UserError, read_regular, write_bytes

FORMAT = 3
UNSEALED = 2  # the format before, without digest and name
CONTENT = ("model", "optimizer", "random", "state")


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write ``state`` (tensors and plain data) to ``path`` by way of a temporary file.

    Raises `errors.DiskFullError` when the disk is full.
    """
    content = {**state, "format": FORMAT, "weights": path.absolute().parent.name}
    content["digest"] = content_digest(content)
    buffer = io.BytesIO()  # torch's own writer tells of a full disk in words of its own
    torch.save(content, buffer)
    write_bytes(path, buffer.getbuffer())


def load_checkpoint(
    path: Path, map_location: str | torch.device = "cpu", sha256: str | None = None
) -> dict[str, Any]:
    """Return the state in ``path``, read with ``weights_only=True``.

    ``sha256`` is what the end of training noted of the file.  Raises `UserError` when the file is
    missing, damaged, of another format or of other weights.
    """
    try:
        data = read_regular(path)
    except FileNotFoundError:
        raise UserError(f"{path}: there is no checkpoint here") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    try:
        state = torch.load(io.BytesIO(data), map_location=map_location, weights_only=True)
    except Exception as error:
        reason = textwrap.shorten(str(error), 120, placeholder=" ...")
        raise _damaged(path, f"{type(error).__name__}: {reason}") from None
    form = state.get("format") if isinstance(state, dict) else None
    if form != FORMAT and not (form == UNSEALED and sha256 is not None):
        raise UserError(f"{path}: not a checkpoint of this version of cotcost")
    if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256:
        raise _damaged(path, "its content is not what its training wrote")
    _require_content(path, state)
    return state


def _require_content(path: Path, state: dict[str, Any]) -> None:
    """Raise `UserError` unless ``state`` is what was saved at ``path``."""
    sealed = state["format"] == FORMAT
    if sealed and state.get("digest") != content_digest(state):
        raise _damaged(path, "its content does not have its digest")
    if not isinstance(state.get("model"), dict):
        raise _damaged(path, "no weights")
    lacking = [key for key in CONTENT if key not in state]
    if lacking:
        raise _damaged(path, f"no {lacking[0]}")
    here, written_for = path.absolute().parent.name, state.get("weights")
    if sealed and written_for != here:
        raise UserError(
            f"{path}: is the checkpoint of the weights {written_for}, not of {here}: it belongs "
            f"into a folder of that name"
        )


def _damaged(path: Path, reason: str) -> UserError:
    return UserError(f"{path}: damaged checkpoint ({reason})")


def content_digest(content: dict[str, Any]) -> str:
    """Return the SHA-256 of all but ``digest``: tensors by type, shape and bytes."""
    digest = hashlib.sha256()
    for part in _parts({key: value for key, value in content.items() if key != "digest"}):
        digest.update(part)
    return digest.hexdigest()


def _parts(value: Any) -> Iterator[bytes | memoryview]:
    if isinstance(value, torch.Tensor):
        yield f"tensor {value.dtype} {tuple(value.shape)} ".encode()
        flat = value.detach().cpu().contiguous().reshape(-1)
        yield flat.view(torch.uint8).numpy().data
    elif isinstance(value, dict):
        yield f"dict {len(value)} ".encode()
        for key, item in value.items():
            yield f"{key!r} ".encode()
            yield from _parts(item)
    elif isinstance(value, list | tuple):
        yield f"list {len(value)} ".encode()
        for item in value:
            yield from _parts(item)
    else:
        yield f"{value!r} ".encode()
