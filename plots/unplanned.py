"""What the plan asks of some models only: unsaid, their short lines would read as failures."""

from __future__ import annotations

from plots.cells import Grid


def not_planned(grid: Grid, name: str) -> str:
    """Return e.g. ``Not planned: n = 24, 32 of Tensor.``, empty where every model has every value.

    ``name`` is that of the values on the x axis.  Those of a model are compared with all that its
    panels show.
    """
    panels = grid.cells["y"].astype(str) + "\0" + grid.cells["column"]
    told: dict[str, list[str]] = {}
    for row in grid.model_rows:
        own = grid.cells["row"] == row
        shown = grid.cells.loc[panels.isin(panels[own]), "x"]
        if lacking := sorted(set(shown) - set(grid.cells.loc[own, "x"])):
            told.setdefault(", ".join(map(str, lacking)), []).append(row)
    parts = [f"{name} = {values} of {' and of '.join(rows)}" for values, rows in told.items()]
    return f"Not planned: {'; '.join(parts)}." if parts else ""
