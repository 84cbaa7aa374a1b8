"""The report page (not written yet: nothing is drawn)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd


def draw(table: pd.DataFrame, plan: pd.DataFrame, experiment: Any, out: Path) -> list[Path]:
    """Write nothing yet."""
    return []


def write(
    table: pd.DataFrame, plan: pd.DataFrame, experiment: Any, out: Path, drawn: list[Path]
) -> list[Path]:
    """Write nothing yet."""
    return []
