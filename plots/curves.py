"""Reading the files beside a results table: configurations, learning curves, where chains break."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pandas as pd

from common import UserError
from records.folders import read_yaml
from records.reading import attachment_path

CURVE_COLUMNS = ["step", "seconds", "validation_chain_exact_match"]


@functools.lru_cache(maxsize=2**14)
def read_config(folder: Path, cell: str) -> dict[str, dict[str, Any]]:
    """Return the sections of ``configs/<cell>.yaml``, none when there is no such file."""
    path = attachment_path(folder, "configs", f"{cell}.yaml")
    content = {} if path is None else read_yaml(path)
    return {name: part for name, part in content.items() if isinstance(part, dict)}


def read_curve(folder: Path, cell: str) -> pd.DataFrame | None:
    """Return ``curves/<cell>.csv``, None when there is none; `UserError` when it is damaged."""
    path = attachment_path(folder, "curves", f"{cell}.csv")
    if path is None or not path.is_file():
        return None
    try:
        curve = pd.read_csv(path)
        lacking = [name for name in CURVE_COLUMNS if name not in curve]
        if lacking:
            raise UserError(f"{path}: lacks the columns {', '.join(lacking)}")
        return curve.astype(float)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not a learning curve ({error})") from None


def read_errors(folder: Path, cell: str) -> dict[str, Any] | None:
    """Return ``errors/<cell>.json``, None when there is none; `UserError` when it is damaged."""
    path = attachment_path(folder, "errors", f"{cell}.json")
    if path is None or not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        for name in ("by_position", "by_step"):
            content[name] = [[int(v) for v in (place, missed, reached)]
                             for place, missed, reached in content[name]]  # fmt: skip
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path}: not a record of where chains break ({error!r})") from None
    return dict(content)
