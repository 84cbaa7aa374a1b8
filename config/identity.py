"""The name of a cell: the hash of the resolved configuration that decides its result."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from config.schema import DECIDING_KEYS, CellConfig
from errors import UserError

# Raise it when a change of the code changes results under an unchanged configuration, so that
# old and new rows cannot be taken for each other.
RESULTS_VERSION = 1


def deciding(config: CellConfig) -> dict[str, Any]:
    """Return the part of ``config`` that decides the result, as plain JSON-able data.

    Files given by the user enter by a digest of their content: an edited file makes a new cell,
    the same file at another path does not.
    """
    whole = dataclasses.asdict(config)
    part = {key: whole[key] for key in DECIDING_KEYS}
    for key in ("file", "train_file"):
        if part["data"][key] is not None:
            part["data"][key] = _digest(part["data"][key], f"data.{key}")
    return part


def cell_name(config: CellConfig) -> str:
    """Return the 12 hexadecimal digits that name the cell in every folder and table."""
    text = json.dumps([RESULTS_VERSION, deciding(config)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _digest(path: str, key: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise UserError(f"{key}={path}: cannot be read ({error.strerror})") from None
