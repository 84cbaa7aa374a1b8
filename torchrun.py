"""What the environment says about torchrun, without importing torch."""

from __future__ import annotations

import os

from common import UserError


def launched() -> int:
    """Return how many processes torchrun started for this command; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1


def is_first() -> bool:
    """Whether this process speaks for all that torchrun started."""
    return launched() == 1 or os.environ["RANK"] == "0"


def refuse_torchrun() -> None:
    """Raise `UserError` under torchrun: for commands that start processes of their own."""
    if launched() > 1:
        raise UserError(
            "torchrun trains one cell; start sweeps, multiruns and several seeds without it"
        )
