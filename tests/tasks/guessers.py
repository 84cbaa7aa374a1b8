"""What can be guessed of an answer without solving the task."""

from __future__ import annotations

from collections import Counter

import numpy as np

from tasks.monoids import Monoid


def letter_counts(letters: np.ndarray, count: int) -> np.ndarray:
    """How often each of ``count`` letters occurs in the words (N, n): (N, count)."""
    return (letters[:, :, None] == np.arange(count)).sum(1)


def logistic_accuracy(features: np.ndarray, answer: np.ndarray) -> float:
    """Accuracy on the second half of logistic regression fitted to the first, by Newton's method.

    ``features`` (N, k), ``answer`` (N,) bool.
    """
    x = np.column_stack([np.ones(len(features)), features]).astype(float)
    half = len(x) // 2
    fitted, weights = x[:half], np.zeros(x.shape[1])
    for _ in range(8):
        share = 1 / (1 + np.exp(-fitted @ weights))
        curvature = (fitted.T * (share * (1 - share))) @ fitted + 1e-3 * np.eye(x.shape[1])
        gradient = fitted.T @ (answer[:half] - share) - 1e-3 * weights
        weights += np.linalg.solve(curvature, gradient)
    return float(((x[half:] @ weights > 0) == answer[half:]).mean())


def table_accuracy(feature: np.ndarray, answer: np.ndarray) -> float:
    """Accuracy on the second half of giving each value of ``feature`` (N,) its most frequent
    answer in the first."""
    half = len(feature) // 2
    seen: dict[int, Counter[bool]] = {}
    for value, right in zip(feature[:half].tolist(), answer[:half].tolist(), strict=True):
        seen.setdefault(value, Counter())[right] += 1
    guess = {value: counts.most_common(1)[0][0] for value, counts in seen.items()}
    told = [guess.get(value, True) for value in feature[half:].tolist()]
    return float((np.array(told) == answer[half:]).mean())


def best_guess_from_counts(monoid: Monoid, letters: tuple[int, ...], size: int) -> float:
    """The largest accuracy that a guess of the product can have that knows only how often each
    letter occurs in a word of ``size`` uniform ``letters``: exactly, over all counts."""
    start = np.zeros(len(monoid))
    start[0] = 1.0
    found = {(0,) * len(letters): start}
    for _ in range(size):
        longer: dict[tuple[int, ...], np.ndarray] = {}
        for counts, shares in found.items():
            for place, letter in enumerate(letters):
                key = (*counts[:place], counts[place] + 1, *counts[place + 1 :])
                after = longer.setdefault(key, np.zeros(len(monoid)))
                np.add.at(after, monoid.table[:, letter], shares / len(letters))
        found = longer
    return float(sum(shares.max() for shares in found.values()))
