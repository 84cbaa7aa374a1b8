"""At how many sizes each model saves against standard attention, in which currency, how much."""

from __future__ import annotations

from typing import Any

import pandas as pd

from plots import tabular
from plots.cells import records
from plots.currencies import CURRENCIES
from plots.tabular import Tabular, significant

NAME = "savings_summary"
COLUMNS = ["model", "currency", "sizes", "cheaper", "open", "dearer",
           "least_saved", "median_saved", "most_saved"]  # fmt: skip
HEADER = ["model", "currency", "sizes", "cheaper", "open", "dearer",
          "least saved", "median", "most"]  # fmt: skip
CAPTION = "Sizes at which a model costs less than standard attention, each at its least D for 90 %."
COUNTED = (
    "Sizes: those at which both reach 90 % and were measured. Saved: standard attention's cost "
    "over the model's; above 1 the model saves. Cheaper, dearer: its whole bar in the figure lies "
    "above or below 1; open: it holds 1 or nothing bounds it there (no smaller D has run). "
    "Training costs have no bar, so only the point counts. Bars hold the steps of D, or the turns "
    "of what was timed, and neither seeds nor what more training steps would change."
)


def rows(ratios: pd.DataFrame) -> pd.DataFrame:
    """Count the rows of `plots.savings_rows.rows` by model and currency.

    ``cheaper``, ``open`` and ``dearer`` add up to ``sizes``; ``*_saved`` are over the sizes.
    """
    if ratios.empty:
        return pd.DataFrame(columns=COLUMNS)
    trained = ratios["currency"].str.startswith("training_")
    low, high = (ratios[side].where(~trained, ratios["saved"]) for side in ("low", "high"))
    counted = ratios.assign(cheaper=low > 1, dearer=high < 1)
    groups = counted.groupby(["model", "currency"], sort=False)
    found = groups.agg(
        sizes=("saved", "size"),
        cheaper=("cheaper", "sum"),
        dearer=("dearer", "sum"),
        least_saved=("saved", "min"),
        median_saved=("saved", "median"),
        most_saved=("saved", "max"),
    ).reset_index()
    found["open"] = found["sizes"] - found["cheaper"] - found["dearer"]
    return found[COLUMNS]


def printed_table(frame: pd.DataFrame, experiment: Any) -> Tabular:
    """Return the table as it is printed."""
    lines = [
        [line.model, CURRENCIES[line.currency].words, str(line.sizes), str(line.cheaper),
         str(line.open), str(line.dearer),
         *map(significant, (line.least_saved, line.median_saved, line.most_saved))]
        for line in records(frame)
    ]  # fmt: skip
    return Tabular(
        title=f"In which currency does it save: {experiment.name}",
        label=tabular.label_of("savings", experiment.name),
        caption=CAPTION,
        header=HEADER,
        rows=lines,
        notes=[COUNTED],
        groups=1,
    )
