"""The least embedding dimension that reaches 90 %, and how surely it is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from plots.paper import THRESHOLD


@dataclass(frozen=True)
class Requirement:
    """What the cells of one size say about the least D for an answer accuracy of 90 %.

    ``dim`` is the least measured D whose mean accuracy reaches the threshold (None: none does),
    ``below`` the largest measured D under it that does not: the requirement lies in
    (below, dim].  ``open_below`` and ``open_above`` list planned dimensions without a result
    under ``dim`` and, where none reaches the threshold, anywhere.
    """

    size: int
    max_len: float
    dim: int | None
    below: int | None
    best_dim: int | None
    best_accuracy: float
    open_below: tuple[int, ...]
    open_above: tuple[int, ...]

    @property
    def state(self) -> str:
        """One of reached, not reached, incomplete (none reaches it, some lack), not run."""
        if self.dim is not None:
            return "reached"
        if self.best_dim is None:
            return "not run"
        return "incomplete" if self.open_above else "not reached"


def requirements(panel: pd.DataFrame, threshold: float = THRESHOLD) -> list[Requirement]:
    """Return a `Requirement` per size of ``panel`` (cells of one task and model), by size."""
    return [
        _requirement(int(size), panel[panel["size"] == size], threshold)
        for size in np.unique(panel["size"])
    ]


def _requirement(size: int, part: pd.DataFrame, threshold: float) -> Requirement:
    done = part[part["state"] == "done"].sort_values("dim")
    reached = done[done["accuracy"] >= threshold]
    dim = int(reached["dim"].min()) if len(reached) else None
    under = done[done["dim"] < dim] if dim is not None else done
    lacking = sorted(int(value) for value in part.loc[part["state"] != "done", "dim"])
    best = done.iloc[int(np.argmax(done["accuracy"]))] if len(done) else None
    return Requirement(
        size=int(size),
        max_len=float(part["max_len"].max()),
        dim=dim,
        below=int(under["dim"].max()) if len(under) else None,
        best_dim=int(best["dim"]) if best is not None else None,
        best_accuracy=float(best["accuracy"]) if best is not None else float("nan"),
        open_below=tuple(d for d in lacking if dim is not None and d < dim),
        open_above=tuple(lacking) if dim is None else (),
    )
