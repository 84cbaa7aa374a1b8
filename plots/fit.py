"""The growth of a requirement that is known in intervals only.

A sweep over half octaves tells that the least D lies in (48, 64], not where.  Putting the point at
64 and drawing a line through it would take the grid's coarseness for the truth, so the exponent is
fitted to the intervals: log D = a + b log L + s * noise, with logistic noise (a log-logistic
accelerated-failure-time model), by maximum likelihood, where each size contributes the probability
of its interval.  "Not reached" enters as (largest D, infinity), "reached at once" as (0, D].  The
95 % interval of b is the profile likelihood's: all b that a likelihood-ratio test does not reject
at 5 %.  Few sizes make it approximate.

Seeds are one more source of doubt: other seeds might have put the least D elsewhere.  Each size may
therefore have several intervals with a probability each, those that resampling its seeds would give
(`plots.resampling`).  The test is made for each combination, and b stays in the interval unless the
mean of its p-values, weighted by the combinations' probabilities, is below 5 %.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfc, expit

SLOPES = np.round(np.arange(-2.0, 4.0001, 0.02), 2)
SCALES = np.geomspace(0.1, 3.0, 10)  # in doublings of D
LEVEL = 0.05
FEWEST = 3
MOST_COMBINATIONS = 100

# (lower end, upper end, probability) of each interval that one size may have.
Outcomes = Sequence[tuple[float, float, float]]


@dataclass(frozen=True)
class Growth:
    """The exponent of D in L; ``low`` or ``high`` is infinite where the data set no bound.

    ``dim`` is D on the fitted line at the geometric mean ``length`` of the lengths.
    """

    exponent: float
    low: float
    high: float
    points: int
    dim: float = math.nan
    length: float = math.nan

    def text(self) -> str:
        """Return e.g. ``0.48 [0.21, 0.76]``."""
        low = "−∞" if np.isinf(self.low) else f"{self.low:.2f}"
        high = "∞" if np.isinf(self.high) else f"{self.high:.2f}"
        return f"{self.exponent:.2f} [{low}, {high}]".replace("-", "−")

    def at(self, lengths: ArrayLike) -> np.ndarray:
        """Return D on the fitted line at ``lengths``."""
        return self.dim * (np.asarray(lengths, float) / self.length) ** self.exponent


def growth(lengths: ArrayLike, above: ArrayLike, up_to: ArrayLike) -> Growth | None:
    """Fit D ~ L^b where the requirement at ``lengths[i]`` lies in (``above[i]``, ``up_to[i]``].

    ``above`` may be 0 (no lower bound) and ``up_to`` infinite (not reached).  None, "too few
    points", for fewer than three lengths or fewer than two intervals bounded on both sides.
    """
    pairs = zip(np.asarray(above, float), np.asarray(up_to, float), strict=True)
    return growth_of_outcomes(lengths, [[(low, high, 1.0)] for low, high in pairs])


def growth_of_outcomes(lengths: ArrayLike, outcomes: Sequence[Outcomes]) -> Growth | None:
    """Fit D ~ L^b where size i has the intervals ``outcomes[i]``, the one found first."""
    known = tuple(np.asarray(lengths, float).tolist())
    return _fitted(known, tuple(map(tuple, outcomes)))


@functools.lru_cache(maxsize=1024)  # several figures ask for the same
def _fitted(lengths: tuple[float, ...], outcomes: tuple[Outcomes, ...]) -> Growth | None:
    x = np.log2(np.asarray(lengths, float))
    first = [found[0] for found in outcomes]
    bounded = sum(low > 0 and np.isfinite(high) for low, high, _ in first)
    if len(np.unique(x)) < FEWEST or bounded < 2:
        return None
    middle = float(x.mean())
    profiles = _Profiles(x - middle, outcomes)
    best, dim = profiles.best()
    kept = SLOPES[profiles.mean_p_value() >= LEVEL]
    return Growth(
        exponent=round(best, 2) + 0.0,
        low=float(kept[0]) if kept[0] > SLOPES[0] else -np.inf,
        high=float(kept[-1]) if kept[-1] < SLOPES[-1] else np.inf,
        points=len(x),
        dim=dim,
        length=2**middle,
    )


class _Profiles:
    """Log-likelihoods over slopes, for combinations of the sizes' outcomes."""

    def __init__(self, x: np.ndarray, outcomes: Sequence[Outcomes]) -> None:
        self.outcomes = outcomes
        with np.errstate(divide="ignore"):
            logs = [[(np.log2(low), np.log2(high)) for low, high, _ in found] for found in outcomes]
        finite = [end for found in logs for pair in found for end in pair if np.isfinite(end)]
        self.intercepts = np.arange(min(finite) - 4, max(finite) + 4, 0.05)
        # Per size and outcome: (scales, slopes, intercepts).
        self.shares = [
            [self._log_share(place, pair) for pair in found]
            for place, found in zip(x, logs, strict=True)
        ]

    def _log_share(self, x: float, interval: tuple[float, float]) -> np.ndarray:
        low, high = interval
        line = self.intercepts[None, None, :] + SLOPES[None, :, None] * x
        scales = SCALES[:, None, None]
        share = expit((high - line) / scales) - expit((low - line) / scales)
        return np.log(np.maximum(share, 1e-300)).astype(np.float32)

    def best(self) -> tuple[float, float]:
        """Return slope and D at the mean log length, of what was found."""
        total = self._total([0] * len(self.outcomes))
        profile = total.max(axis=(0, 2))
        slope = float(SLOPES[profile >= profile.max() - 0.01].mean())
        at = total[:, int(np.argmin(abs(SLOPES - slope))), :].max(axis=0)
        return slope, 2 ** float(self.intercepts[at >= at.max() - 0.01].mean())

    def mean_p_value(self) -> np.ndarray:
        """Return for each slope the mean p-value over the likeliest combinations."""
        places = itertools.product(*(range(len(found)) for found in self.outcomes))
        weighed = [(math.prod(self.outcomes[i][k][2] for i, k in enumerate(p)), p) for p in places]
        weighed = sorted(weighed, key=lambda pair: -pair[0])[:MOST_COMBINATIONS]
        values = [weight * _p_value(self._total(place)) for weight, place in weighed]
        return np.sum(values, axis=0) / sum(weight for weight, _ in weighed)

    def _total(self, places: Sequence[int]) -> np.ndarray:
        chosen = [self.shares[i][k] for i, k in enumerate(places)]
        return np.asarray(np.sum(chosen, axis=0, dtype=np.float32))


def _p_value(total: np.ndarray) -> np.ndarray:
    """Return the p-value of each slope: chi squared with one degree of freedom (Wilks 1938)."""
    profile = total.max(axis=(0, 2)).astype(float)
    return np.asarray(erfc(np.sqrt(profile.max() - profile)))
