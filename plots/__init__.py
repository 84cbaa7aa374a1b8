"""The paper's figures and tables, redrawn from a results table.

One module per figure or table.  Each offers ``draw(table, plan, experiment, out) -> list[Path]``:
``table`` is ``results.csv``, ``plan`` the cells that the experiment wants (to draw missing ones as
missing), ``out`` the folder to write to.  ``python -m plots experiment=NAME`` draws those that the
experiment names, and where it names none all of ``FIGURES``.
"""

import contextlib
import os

# Matplotlib refuses to be imported where MPLBACKEND names no backend; figures here need none.
_backend = os.environ.pop("MPLBACKEND", None)
import matplotlib  # noqa: E402

if _backend:
    os.environ["MPLBACKEND"] = _backend
    with contextlib.suppress(ValueError):
        matplotlib.rcParams["backend"] = _backend

FIGURES = (
    "heatmap",
    "flops_table",
    "required_dimension",
    "least_dim_vs_budget",
    "exponents",
    "seeds",
    "accuracy_vs_flops",
    "learning_curves",
    "error_positions",
)
# Drawn only where an experiment or the call names them.
SPECIAL = (
    "accuracy_by_length",
    "accuracy_by_kind",
    "depth",
    "cost_table",
    "savings",
    "least_dim_table",
    "state",
    "locality",
)
