"""The exponent b of D90 ~ L^b, fitted to brackets of D90.

A grid of half octaves says that D90 lies in (48, 64], not where. So b is fitted to brackets, by
maximum likelihood: log D = a + b log L + s * noise with logistic noise (a log-logistic
accelerated-failure-time model), where each size contributes the probability of its bracket. The 95
% interval holds all b not rejected by a likelihood-ratio test (Wilks 1938), its p-value averaged
over bootstrap samples of the seeds. With few sizes it is approximate.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import chdtrc, expit

from experiments.d90 import bracket
from plots import data, theory

SLOPES = np.round(np.arange(-2.0, 4.0001, 0.02), 2)
SCALES = np.geomspace(0.1, 3.0, 10)  # in doublings of D
LEVEL = 0.05
FEWEST = 3  # lengths
SAMPLES = 200
DECIMALS = 2

Brackets = tuple[tuple[float, float], ...]
Seeds = Mapping[float, Mapping[float, np.ndarray]]  # length -> D -> accuracies of its seeds


class Growth(NamedTuple):
    """An exponent and its 95 % interval; an end is infinite if the data do not bound it."""

    exponent: float
    low: float
    high: float


def fit_exponent(seeds: Seeds) -> Growth | None:
    """Fit D90 ~ L^b; None for fewer than three lengths or two brackets bounded on both sides."""
    draw = np.random.default_rng(0)
    lengths, medians = sorted(seeds), []
    for length in lengths:
        at_length = {}  # by D: the median of all seeds, then of bootstrap samples of them
        for dim, own in seeds[length].items():
            samples = own[draw.integers(len(own), size=(SAMPLES, len(own)))]
            at_length[dim] = np.median([own, *samples], axis=1)
        medians.append(at_length)
    found, *resampled = (
        tuple(bracket({dim: each[i] for dim, each in by_dim.items()})[1:] for by_dim in medians)
        for i in range(SAMPLES + 1)
    )
    return fit(tuple(lengths), found, resampled)


def fit(
    lengths: tuple[float, ...], found: Brackets, resampled: Sequence[Brackets] = ()
) -> Growth | None:
    """Fit y ~ L^b, y at `lengths[i]` in the bracket `found[i]`; see `fit_exponent`."""
    bounded = sum(low > 0 and np.isfinite(high) for low, high in found)
    if len(set(lengths)) < FEWEST or bounded < 2:
        return None
    total = _profile(lengths, found)
    best = float(SLOPES[total >= total.max() - 0.01].mean())
    profiles = [_profile(lengths, ends) for ends in resampled or [found]]
    p_value = np.mean([chdtrc(1, 2 * (p.max() - p)) for p in profiles], axis=0)
    kept = SLOPES[p_value >= LEVEL]
    low = kept[0] if kept[0] > SLOPES[0] else -np.inf
    high = kept[-1] if kept[-1] < SLOPES[-1] else np.inf
    return Growth(round(best, DECIMALS) + 0.0, float(low), float(high))


@functools.lru_cache(maxsize=4096)
def _profile(lengths: tuple[float, ...], ends: Brackets) -> np.ndarray:
    """The log likelihood of each slope, at its best intercept and scale."""
    x = np.log2(lengths) - np.log2(lengths).mean()
    with np.errstate(divide="ignore"):
        low, high = np.log2(np.array(ends)).T
    known = [end for end in (*low, *high) if np.isfinite(end)]
    scale = SCALES[:, None, None].astype(np.float32)

    def likelihood(intercepts: np.ndarray) -> np.ndarray:  # (scales, slopes, intercepts)
        total: Any = np.float32(0)
        for place, below, up_to in zip(x, low, high, strict=True):
            line = (intercepts + SLOPES[:, None] * place).astype(np.float32)
            share = expit((up_to - line) / scale) - expit((below - line) / scale)
            total = total + np.log(np.maximum(share, 1e-30))
        return total

    # Concave in the intercept, so the best is beside the best of a coarse grid.
    coarse = np.arange(min(known) - 3, max(known) + 3, 0.25)
    best = coarse[likelihood(coarse).argmax(axis=2)][..., None]
    return likelihood(best + np.arange(-5, 6) * 0.05).max(axis=(0, 2)).astype(float)


def exponents(
    table: pd.DataFrame, facets: data.Facets = None, against: str = "max_len"
) -> pd.DataFrame:
    """b of D90 ~ L^b, fitted to the brackets (log-logistic, interval-censored), with an approximate
    95 % interval: likelihood ratio, averaged over bootstrap samples of the seeds. Paper: Table 1.

    A row per task and model with three values or more of `against`: L, or heads.
    """
    rows = data.labelled(data.finished_rows(table, facets), facets, apart=[against])
    found = []
    apart = ["column", "row"] if against == "max_len" else ["column", "row", "size"]
    for _, part in rows.groupby(apart, sort=False):
        seeds: Any = {
            x: {dim: own.to_numpy() for dim, own in at_x.groupby("dim")["answer_accuracy"]}
            for x, at_x in part.groupby(against)
        }
        fitted = fit_exponent(seeds)
        if fitted is None:
            continue
        first = part.iloc[0]
        said = theory.prediction(first) if against == "max_len" else None
        found.append(
            {"task": first["column"], "model": first["row"], "points": len(seeds),
             "b": fitted.exponent, "low": fitted.low, "high": fitted.high,
             "paper": f"{said.bound}{said.exponent:g}" if said else ""}
        )  # fmt: skip
    return pd.DataFrame(found, columns=["task", "model", "points", "b", "low", "high", "paper"])
