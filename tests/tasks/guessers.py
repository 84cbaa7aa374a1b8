"""What can be guessed of an answer without solving the task."""

from __future__ import annotations

from collections import Counter

import numpy as np


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
