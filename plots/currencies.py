"""The currencies in which 90 % is paid for, and which of two models is cheaper in one."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from plots.tabular import significant
from records.table import MOVED

NONE = "—"


@dataclass(frozen=True)
class Currency:
    """One column: its heading, its name in sentences, and how a value is printed."""

    heading: str
    words: str
    unit: float = 1.0
    more_is_better: bool = False
    turns: str = ""  # the list of `Timed` of which a winner must win every turn

    def text(self, value: float) -> str:
        """Return three significant digits in plain decimals, the dash where nothing is known."""
        return NONE if math.isnan(value) else significant(value / self.unit)


CURRENCIES = {
    "flops_linear_layers": Currency("linear-layer GFLOPs", "linear-layer FLOPs", 1e9),
    "flops_total": Currency("total GFLOPs", "total FLOPs", 1e9),
    "state_bytes": Currency("state KiB", "bytes of state", 1024),
    "answer_seconds": Currency("ms an answer", "time an answer", 1e-3, turns="answer_seconds"),
    "tokens_per_second": Currency(
        "tokens/s", "time a token in batches", more_is_better=True, turns="tokens_per_second"
    ),
    "training_flops": Currency("training TFLOPs", "training FLOPs", 1e12),
    "training_seconds": Currency("training core-s", "training core-seconds"),
    "seconds_as_run": Currency("training s as run", "training seconds as run"),
}


def winners(part: pd.DataFrame, name: str) -> list[str]:
    """Return yes or no for each model of a group, empty for what cannot be compared."""
    currency = CURRENCIES[name]
    known = part[(part["state"] == "reached") & part[name].notna()]
    if len(known) < 2 or (name == "seconds_as_run" and not comparable(known["trained_on"])):
        return [""] * len(part)
    best = known.sort_values(name, ascending=not currency.more_is_better, kind="stable").iloc[0]
    said = {
        place: "no" if compare(best, line, name) > 0 else "yes" for place, line in known.iterrows()
    }
    return [said.get(place, "") for place in part.index]


def comparable(devices: Iterable[str]) -> bool:
    """Tell whether seconds as run are of one device, from which no training moved to another."""
    return len({*devices}) == 1 and all(MOVED not in device for device in devices)


def compare(one: Any, other: Any, name: str) -> int:
    """Return 1 where ``one`` is better than ``other``, -1 where it is worse, 0 where neither.

    Of what was timed in turns, better is what is better in every turn.
    """
    currency = CURRENCIES[name]
    pairs = [(one[name], other[name])]
    if currency.turns:
        pairs = list(zip(*(getattr(x["timed"], currency.turns) for x in (one, other)), strict=True))
    signs = {int(np.sign(b - a)) for a, b in pairs}
    sign = signs.pop() if len(signs) == 1 else 0
    return -sign if currency.more_is_better else sign
