"""Checkpoints: the whole state of a training run, whole on disk or absent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from errors import UserError
from files import write_atomically

FORMAT = 2


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write ``state`` (tensors and plain data) to ``path`` by way of a temporary file.

    Raises `errors.RunError` when the disk is full.
    """
    write_atomically(path, lambda temporary: torch.save({"format": FORMAT, **state}, temporary))


def load_checkpoint(path: Path, map_location: str | torch.device = "cpu") -> dict[str, Any]:
    """Return the state in ``path``, read with ``weights_only=True``.

    Raises `UserError` when the file is missing, damaged, without weights, or of another format.
    """
    if not path.is_file():
        raise UserError(f"{path}: there is no checkpoint here; is this the folder of a run?")
    try:
        state = torch.load(path, map_location=map_location, weights_only=True)
    except Exception as error:
        reason = str(error).strip().split("\n")[0][:120]
        raise UserError(
            f"{path}: damaged checkpoint ({type(error).__name__}: {reason}); "
            "delete it and run the cell again"
        ) from None
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise UserError(f"{path}: not a checkpoint of this version of cotcost")
    if not isinstance(state.get("model"), dict):
        raise UserError(
            f"{path}: damaged checkpoint (no weights); delete it and run the cell again"
        )
    return state
