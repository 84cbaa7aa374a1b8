"""Numbers with bounds that say why: what exceeds one is a typing mistake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import AfterValidator

MOST_STEPS = 10**9  # at a millisecond each, eleven days


def bounded(least: float, most: float, why: str, above: bool = False) -> AfterValidator:
    """Return a check for pydantic: from ``least`` (or ``above`` it) to ``most``, for ``why``."""
    return AfterValidator(_check(least, most, why, above))


def _check(least: float, most: float, why: str, above: bool) -> Callable[[Any], Any]:
    start = f"greater than {least:,}" if above else f"at least {least:,}"

    def check(value: Any) -> Any:
        if value < least or (above and value == least):
            raise ValueError(f"must be {start}")
        if not value <= most:
            raise ValueError(f"must be at most {most:,}: {why}")
        return value

    return check
