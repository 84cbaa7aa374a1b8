"""Checkpoints, written atomically, with a digest."""

import hashlib
import io
from pathlib import Path
from typing import Any

import torch

from common import UserError, sha256_of, write_bytes, write_text


def save_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Write `content` (tensors and plain data) to `path`, and its SHA-256 beside it."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    digests = [hashlib.sha256(buffer.getbuffer()).hexdigest()]
    if path.exists():
        digests.append(sha256_of(path))  # a kill between the two files leaves the old checkpoint
    lines = "".join(f"{digest}  {path.name}\n" for digest in digests)
    write_text(path.with_suffix(".sha256"), lines)
    write_bytes(path, buffer.getbuffer())


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read what `save_checkpoint` wrote; UserError if missing or damaged."""
    if not path.exists():
        raise UserError(f"{path}: no checkpoint found")
    data, beside = path.read_bytes(), path.with_suffix(".sha256")
    digests = beside.read_text().split() if beside.exists() else []
    if hashlib.sha256(data).hexdigest() not in digests:
        raise UserError(f"{path}: damaged checkpoint (its SHA-256 differs from {beside.name})")
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
