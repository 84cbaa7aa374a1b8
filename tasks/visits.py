"""When the products of a uniform word visit a subgroup F: a renewal process, drawn conditioned.

Each product lies in F with probability 1 / index, independently of the others, so d letters pass
from one visit to the next with probability (1 - 1 / index)^(d - 1) / index.
"""

from __future__ import annotations

import functools

import numpy as np

KINDS = ("yes", "ends outside F", "gap too long")
_ALL_SHORT, _ENDS_OUTSIDE, _ONE_LONG = range(3)


@functools.lru_cache(maxsize=256)
def gap_shares(index: int, r: int, size: int) -> np.ndarray:
    """Return (3, size + 1, 2r + 1): by kind and letters left, weights of the letters d to the next
    visit; entry 0 is the weight of none coming.

    What is left must have gaps of at most r and end with a visit (kind 0); have such gaps and end
    1 .. r letters after the last visit (kind 1); end with a visit and have one gap of r + 1 .. 2r
    (kind 2).  A weight counts every way to go on after the gap.
    """
    gap = (1 - 1 / index) ** (np.arange(2 * r + 1) - 1) / index  # of d letters; gap[0] is not used
    shares = np.zeros((3, size + 1, 2 * r + 1))
    total = np.zeros((3, size + 1))
    total[_ALL_SHORT, 0] = 1
    for left in range(1, size + 1):
        for d in range(1, min(2 * r, left) + 1):
            rest = total[:, left - d].copy()
            if d > r:
                rest = np.array([0.0, 0.0, rest[_ALL_SHORT]])
            shares[:, left, d] = gap[d] * rest
        if left <= r:
            shares[_ENDS_OUTSIDE, left, 0] = (1 - 1 / index) ** left
        total[:, left] = shares[:, left].sum(axis=1)
    return shares


def draw_visits(index: int, r: int, numbers: np.ndarray) -> np.ndarray:
    """Return at which of n letters F is visited, (N, n), from ``numbers`` (N, n + 1) in [0, 1).

    Half of the rows are of kind 0, a quarter of kind 1, a quarter of kind 2; n is at least r + 1.
    """
    count, size = len(numbers), numbers.shape[1] - 1
    cumulative = gap_shares(index, r, size).cumsum(axis=2)
    kind = np.maximum((numbers[:, 0] * 4).astype(np.int64) - 1, 0)  # 0 and 0, then 1, then 2
    visits = np.zeros((count, size), bool)
    at, rows = np.zeros(count, np.int64), np.arange(count)
    for i in range(size):
        shares = cumulative[kind[rows], size - at[rows]]  # (n, 2r + 1)
        gap = (shares <= numbers[rows, 1 + i, None] * shares[:, -1:]).sum(axis=1)
        rows, gap = rows[gap > 0], gap[gap > 0]
        at[rows] += gap
        visits[rows, at[rows] - 1] = True
        kind[rows[gap > r]] = _ALL_SHORT
        rows = rows[at[rows] < size]
    return visits
