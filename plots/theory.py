"""Numbers of Yang et al. (ICML 2024), "Do Efficient Transformers Really Save Computation?"."""

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

# Table 2: least GFLOPs for an accuracy above 90 % on Arithmetic, by model and operators.
TABLE_2_GFLOPS = {
    "standard": {6: 0.027, 10: 0.266, 13: 0.426, 16: 0.605},
    "linear": {6: 0.422, 10: 4.220, 13: 6.756, 16: 9.584},
    "sparse": {6: 0.106, 10: 1.055, 13: 1.690, 16: 2.399},
}

# The paper does not print these. All twelve numbers above equal 2 * 12 * M * D^2 * L (M = 3
# layers) within 5 % with the paper's L, each for exactly one power of two D: its D90.
PAPER_D90 = {
    "standard": {6: 64, 10: 128, 13: 128, 16: 128},
    "linear": {6: 256, 10: 512, 13: 512, 16: 512},
    "sparse": {6: 128, 10: 256, 13: 256, 16: 256},
}
LAYERS = 3


def paper_value(row: Any, known: Mapping[str, Mapping[int, float]]) -> float:
    """The paper's number for a row of results, in `PAPER_D90` or `TABLE_2_GFLOPS`; nan if there
    is none for its task, format, number of layers, model or size."""
    covered = row["task"] == "arithmetic" and row["format"] == "cot" and row["layers"] == LAYERS
    return known.get(row["model"], {}).get(row["size"], math.nan) if covered else math.nan


class Prediction(NamedTuple):
    """The growth of D as L^b by Table 1: b is equal to, at least or at most `exponent`.

    Up to logarithms. The general case is sufficient (theorems 4.1 and 4.2), and necessary where L
    grows as the input's length (theorem 4.4), as on LIS; on ED, whose L grows as its square, it is
    an upper bound. A constant D suffices for standard attention (Feng et al. 2023) and, under
    locality, sparse (propositions 5.1 and 5.4); for linear attention under locality there are only
    lower bounds (propositions 5.2 and 5.5, b = 1/4 as L = Theta(m^2)).
    """

    exponent: float
    bound: Literal["", "≥ ", "≤ "] = ""


CONSTANT, ROOT, FOURTH_ROOT = Prediction(0.0), Prediction(0.5), Prediction(0.25, "≥ ")
# ED is local only if m counts the distance between chain states: by Definition 5.3 its cells need
# letters of the prompt at any distance, so the general bound applies, as an upper one. ED_Local is
# local by Definition 5.3, m = O(n) = O(sqrt L): D of linear attention >= sqrt m.
GENERAL = {"standard": CONSTANT, "sparse": ROOT, "linear": ROOT}
LOCAL = {"standard": CONSTANT, "sparse": CONSTANT, "linear": FOURTH_ROOT}
ENOUGH = {"standard": CONSTANT, "sparse": Prediction(0.5, "≤ "), "linear": Prediction(0.5, "≤ ")}
GROWTH_OF_DIM = {"lis": GENERAL, "arithmetic": LOCAL, "ed_local": LOCAL, "ed": ENOUGH}
POWERS = {0.25: "$L^{1/4}$", 0.5: "$L^{1/2}$"}


def prediction(row: Any) -> Prediction | None:
    """Table 1's prediction; None for tasks, models and formats it does not cover."""
    return GROWTH_OF_DIM.get(row["task"], {}).get(row["model"]) if row["format"] == "cot" else None
