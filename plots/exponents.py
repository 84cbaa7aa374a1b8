"""The exponent b of D90 ~ L^b, fitted to brackets of D90.

A grid of half octaves says that D90 lies in (48, 64], not where. So b is fitted to brackets, by
maximum likelihood: log D = a + b log L + s * noise with logistic noise (a log-logistic
accelerated-failure-time model), where each size contributes the probability of its bracket. The 95
% interval holds all b not rejected by a likelihood-ratio test (Wilks 1938), its p-value averaged
over bootstrap samples of the seeds. With few sizes it is approximate.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import chdtrc, expit

from experiments.d90 import Bracket, bracket, settings_of
from plots import data, theory

SLOPES = np.round(np.arange(-2.0, 4.0001, 0.02), 2)
SCALES = np.geomspace(0.1, 3.0, 10)  # in doublings of D
LEVEL = 0.05
FEWEST = 3  # lengths
SAMPLES = 200
FIGURES = 2

Brackets = tuple[tuple[float, float], ...]
Seeds = Mapping[float, Mapping[float, np.ndarray]]  # length -> D -> accuracies of its seeds


class Growth(NamedTuple):
    """An exponent and its 95 % interval; an end is infinite if the data do not bound it."""

    exponent: float
    low: float
    high: float


def growth(seeds: Seeds) -> Growth | None:
    """Fit D90 ~ L^b; None for fewer than three lengths or two brackets bounded on both sides."""
    lengths = tuple(sorted(seeds))
    found = _ends([bracket(_medians(seeds[length])) for length in lengths])
    return fit(lengths, found, _resampled(seeds))


def fit(
    lengths: tuple[float, ...], found: Brackets, resampled: Sequence[Brackets] = ()
) -> Growth | None:
    """Fit y ~ L^b, y at `lengths[i]` in the bracket `found[i]`; see `growth`."""
    bounded = sum(low > 0 and np.isfinite(high) for low, high in found)
    if len(set(lengths)) < FEWEST or bounded < 2:
        return None
    total = _profile(lengths, found)
    best = float(SLOPES[total >= total.max() - 0.01].mean())
    p_values = [_p_value(_profile(lengths, ends)) for ends in resampled or [found]]
    p_value = np.mean(p_values, axis=0)
    kept = SLOPES[p_value >= LEVEL]
    low = kept[0] if kept[0] > SLOPES[0] else -np.inf
    high = kept[-1] if kept[-1] < SLOPES[-1] else np.inf
    return Growth(round(best, FIGURES) + 0.0, float(low), float(high))


def _medians(by_dim: Mapping[float, np.ndarray]) -> dict[float, float]:
    return {dim: float(np.median(values)) for dim, values in by_dim.items()}


def _ends(found: Sequence[Bracket]) -> Brackets:
    return tuple((item.low, item.high) for item in found)


def _resampled(seeds: Seeds) -> list[Brackets]:
    """Brackets for bootstrap samples of every cell's seeds."""
    draw = np.random.default_rng(0)
    if all(len(v) == 1 for by_dim in seeds.values() for v in by_dim.values()):
        return [_ends([bracket(_medians(seeds[length])) for length in sorted(seeds)])]
    by_length = []
    for length in sorted(seeds):
        medians = {
            dim: np.median(values[draw.integers(len(values), size=(SAMPLES, len(values)))], axis=1)
            for dim, values in seeds[length].items()
        }
        by_length.append([bracket({d: m[i] for d, m in medians.items()}) for i in range(SAMPLES)])
    return [_ends(found) for found in zip(*by_length, strict=True)]


@functools.lru_cache(maxsize=4096)
def _profile(lengths: tuple[float, ...], ends: Brackets) -> np.ndarray:
    """The log likelihood of each slope, at its best intercept and scale."""
    x = np.log2(lengths) - np.log2(lengths).mean()
    with np.errstate(divide="ignore"):
        low, high = np.log2(np.array(ends)).T
    known = [end for end in (*low, *high) if np.isfinite(end)]
    scale = SCALES[:, None, None].astype(np.float32)

    def likelihood(intercepts: np.ndarray) -> np.ndarray:  # (scales, slopes, intercepts)
        total = np.float32(0)
        for place, below, up_to in zip(x, low, high, strict=True):
            line = (intercepts + SLOPES[:, None] * place).astype(np.float32)
            share = expit((up_to - line) / scale) - expit((below - line) / scale)
            total = total + np.log(np.maximum(share, 1e-30))
        return total

    # Concave in the intercept, so the best is beside the best of a coarse grid.
    coarse = np.arange(min(known) - 3, max(known) + 3, 0.25)
    best = coarse[likelihood(coarse).argmax(axis=2)][..., None]
    return likelihood(best + np.arange(-5, 6) * 0.05).max(axis=(0, 2)).astype(float)


def _p_value(profile: np.ndarray) -> np.ndarray:
    return np.asarray(chdtrc(1, 2 * (profile.max() - profile)))


def _by_dim(rows: pd.DataFrame) -> dict[float, np.ndarray]:
    dims, values = rows["dim"].to_numpy(float), rows["answer_accuracy"].to_numpy(float)
    return {float(dim): values[dims == dim] for dim in np.unique(dims)}


def exponents(
    table: pd.DataFrame, facets: data.Facets | None = None, against: str = "max_len"
) -> pd.DataFrame:
    """b of D90 ~ L^b, or in the number of heads (`against`), a row per task and model with three
    values or more: task, model, points, `b` with its interval, and Table 1 of the paper."""
    rows = data.labelled(data.chosen(table, facets), facets)
    keys = settings_of(rows)
    if against == "heads":
        rows = rows.assign(row=data.words(rows, ["model"]))
    apart = [key for key in keys if key not in (("size",) if against == "max_len" else (against,))]
    found = []
    for _, part in rows.groupby([*apart, "row"], dropna=False, sort=False):
        seeds = {float(x): _by_dim(part[part[against] == x]) for x in np.unique(part[against])}
        fitted = growth(seeds)
        if fitted is None:
            continue
        first = part.iloc[0]
        said = theory.prediction(first["task"], first["model"]) if against == "max_len" else None
        found.append(
            {"task": first["column"], "model": first["row"], "points": len(seeds),
             "b": fitted.exponent, "low": fitted.low, "high": fitted.high,
             "paper": theory.in_words(said)}
        )  # fmt: skip
    return pd.DataFrame(found, columns=["task", "model", "points", "b", "low", "high", "paper"])
