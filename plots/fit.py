"""The growth of a requirement that is known in intervals only.

A sweep over powers of two tells that the least D lies in (32, 64], not where.  Putting the point at
64 and drawing a line through it would take the grid's coarseness for the truth, so the exponent is
fitted to the intervals: log D = a + b log L + s * noise, with logistic noise (a log-logistic
accelerated-failure-time model), by maximum likelihood, where each size contributes the probability
of its interval.  "Not reached" enters as (largest D, infinity), "reached at once" as (0, D].  The
95 % interval of b is the profile likelihood's: all b whose best log-likelihood lies within 1.92 of
the best.  Few sizes make it approximate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

SLOPES = np.round(np.arange(-2.0, 4.0001, 0.02), 2)
SCALES = np.geomspace(0.1, 3.0, 10)  # in doublings of D
DROP = 1.92  # half the 95 % quantile of chi squared with one degree of freedom
FEWEST = 3


@dataclass(frozen=True)
class Growth:
    """The exponent of D in L; ``low`` or ``high`` is infinite where the data set no bound."""

    exponent: float
    low: float
    high: float
    points: int

    def text(self) -> str:
        """Return e.g. ``0.48 [0.21, 0.76]``."""
        low = "−∞" if np.isinf(self.low) else f"{self.low:.2f}"
        high = "∞" if np.isinf(self.high) else f"{self.high:.2f}"
        return f"{self.exponent:.2f} [{low}, {high}]".replace("-", "−")


def growth(lengths: ArrayLike, above: ArrayLike, up_to: ArrayLike) -> Growth | None:
    """Fit D ~ L^b where the requirement at ``lengths[i]`` lies in (``above[i]``, ``up_to[i]``].

    ``above`` may be 0 (no lower bound) and ``up_to`` infinite (not reached).  None, "too few
    points", for fewer than three lengths or fewer than two intervals bounded on both sides.
    """
    low, high = np.asarray(above, float), np.asarray(up_to, float)
    bounded = (low > 0) & np.isfinite(high)
    if len(np.unique(np.asarray(lengths))) < FEWEST or bounded.sum() < 2:
        return None
    x = np.log2(np.asarray(lengths, float))
    x = x - x.mean()
    with np.errstate(divide="ignore"):
        low, high = np.log2(low), np.log2(high)
    profile = _profile(x, low, high)
    best = SLOPES[profile >= profile.max() - 0.01]
    inside = SLOPES[profile >= profile.max() - DROP]
    return Growth(
        exponent=round(float(best.mean()), 2) + 0.0,
        low=float(inside[0]) if inside[0] > SLOPES[0] else -np.inf,
        high=float(inside[-1]) if inside[-1] < SLOPES[-1] else np.inf,
        points=len(x),
    )


def _profile(x: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return the best log-likelihood for each slope, over intercepts and scales."""
    finite = np.concatenate([low[np.isfinite(low)], high[np.isfinite(high)]])
    intercepts = np.arange(finite.min() - 4, finite.max() + 4, 0.05)
    # (slopes, intercepts, points)
    line = intercepts[None, :, None] + SLOPES[:, None, None] * x
    best = np.full(len(SLOPES), -np.inf)
    for scale in SCALES:
        share = _logistic((high - line) / scale) - _logistic((low - line) / scale)
        total = np.log(np.maximum(share, 1e-300)).sum(axis=2)
        best = np.maximum(best, total.max(axis=1))
    return best


def _logistic(value: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(value / 2))
