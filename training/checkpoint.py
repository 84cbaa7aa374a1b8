"""Checkpoints, written atomically."""

import io
import zipfile
from pathlib import Path
from typing import Any

import torch

from common import UserError, write_bytes


def save_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Write `content` (tensors and plain data) to `path`: a zip with a CRC-32 of every part."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    write_bytes(path, buffer.getbuffer())


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read what `save_checkpoint` wrote; UserError if missing or damaged."""
    if not path.exists():
        raise UserError(f"{path}: no checkpoint found")
    data = io.BytesIO(path.read_bytes())
    try:
        damaged = zipfile.ZipFile(data).testzip()  # PyTorch does not check the CRCs
        data.seek(0)
        content: dict[str, Any] = torch.load(data, map_location="cpu", weights_only=True)
    except Exception as error:
        damaged = str(error)
    if damaged:
        raise UserError(f"{path}: damaged checkpoint ({damaged})")
    return content
