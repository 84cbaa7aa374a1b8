"""Draw words over a monoid: with a given product, or with the last reset at a given distance.
Random numbers (N, k), uniform in [0, 1), are the input; letters (N, n), element numbers, the
output."""

import functools
import math

import numpy as np

from tasks.monoids import Monoid

ROUNDS = 4  # tries to shuffle a word


def choose(numbers: np.ndarray, count: int | np.ndarray) -> np.ndarray:
    """Integers uniform in 0 .. `count` - 1, of the shape of `numbers`."""
    return (numbers * count).astype(np.int64)


def prefix_products(monoid: Monoid, letters: np.ndarray) -> np.ndarray:
    """Products p_1 .. p_n (N, n) of words (N, n)."""
    products = np.empty_like(letters)
    state = np.zeros(len(letters), np.int64)
    for i in range(letters.shape[1]):
        state = monoid.table[state, letters[:, i]]
        products[:, i] = state
    return products


@functools.lru_cache(maxsize=8)
def transition_shares(monoid: Monoid, letters: tuple[int, ...], steps: int) -> np.ndarray:
    """(steps + 1, S, S): the share of words of m `letters` that lead from s to t."""
    turns = np.zeros((len(monoid), len(monoid)))
    following = monoid.table[:, list(letters)]  # (S, A)
    np.add.at(turns, (np.arange(len(monoid))[:, None], following), 1 / len(letters))
    shares = [np.eye(len(monoid))]
    for _ in range(steps):
        shares.append(turns @ shares[-1])
    return np.stack(shares)


def words_to(
    monoid: Monoid, letters: tuple[int, ...], targets: np.ndarray, numbers: np.ndarray
) -> np.ndarray:
    """Draw words (N, n), uniform among those with product `targets` (N,)."""
    steps = numbers.shape[1]
    shares = transition_shares(monoid, letters, steps)
    chosen = np.array(letters)
    words = np.empty(numbers.shape, np.int64)
    state = np.zeros(len(targets), np.int64)
    for i in range(steps):
        after = monoid.table[state[:, None], chosen]  # (N, A)
        weights = shares[steps - 1 - i][after, targets[:, None]].cumsum(axis=1)  # (N, A)
        pick = (weights <= numbers[:, i, None] * weights[:, -1:]).sum(axis=1)
        words[:, i] = chosen[pick]
        state = monoid.table[state, words[:, i]]
    return words


def balanced_targets(
    monoid: Monoid, letters: tuple[int, ...], steps: int, numbers: np.ndarray
) -> np.ndarray:
    """Draw products (N,) from `numbers` (N, 2): half e, the others similar to it.

    The others are in the commutator subgroup, so that every map to a commutative group, including
    letter counts and parities, takes them to where it takes e; in a commutative group they are any
    elements. Each has the share of words that lead to it, so words are uniform.
    """
    shares = transition_shares(monoid, letters, steps)[steps, 0].copy()  # (S,)
    reached = shares[0] > 0
    shares[0] = 0
    allowed = np.isin(np.arange(len(monoid)), monoid.commutators)
    if (shares * allowed).any():
        shares *= allowed
    if not shares.any():
        return np.zeros(len(numbers), np.int64)
    cumulative = shares.cumsum()
    drawn = np.searchsorted(cumulative, numbers[:, 1] * cumulative[-1], side="right")
    return np.where((numbers[:, 0] < 0.5) & reached, 0, drawn)


def member_words(
    monoid: Monoid, letters: tuple[int, ...], size: int, numbers: np.ndarray
) -> np.ndarray:
    """Draw words (N, size), half with product e, from `numbers` (N, (2 ROUNDS + 1) size + 2).

    Over all letters they are uniform given a product from `balanced_targets`. Over few letters,
    words that give e have other letter counts than most, so a no is a shuffle of a yes. If no
    shuffle is found, a fixed yes or no is used; duplicates are dropped later. In a commutative
    group a shuffle changes nothing.
    """
    targets = balanced_targets(monoid, letters, size, numbers[:, :2])
    shares = transition_shares(monoid, letters, size)[size, 0]  # (S,)
    few = len(letters) < len(monoid) and len(monoid.commutators) > 1
    if not few or not shares[0]:
        return words_to(monoid, letters, targets, numbers[:, 2 : 2 + size])
    is_yes = targets == 0
    fixed = np.where(is_yes, 0, shares[1:].argmax() + 1)
    words = words_to(monoid, letters, fixed, np.zeros((len(fixed), size)))
    waiting = np.arange(len(words))
    for block in np.split(numbers[:, 2 + size :], ROUNDS, axis=1):
        block = block[waiting]
        yes = words_to(monoid, letters, np.zeros(len(waiting), np.int64), block[:, :size])
        no = np.take_along_axis(yes, block[:, size:].argsort(axis=1), axis=1)
        found = prefix_products(monoid, no)[:, -1] != 0
        rows = waiting[found]
        words[rows] = np.where(is_yes[rows, None], yes[found], no[found])
        waiting = waiting[~found]
    return words


@functools.lru_cache(maxsize=256)
def _earlier_shares(last: int) -> np.ndarray:
    """Cumulative shares of 1, 3, .. of `last` letters being resets, (last + 1) // 2, among words
    that continue with one more reset and have as many a as b."""
    counts = range(1, last + 1, 2)
    words = [math.comb(last, k) * math.comb(k + 1, (k + 1) // 2) for k in counts]
    return np.cumsum([count / sum(words) for count in words])


def flip_flop_words(size: int, numbers: np.ndarray) -> np.ndarray:
    """Draw words (N, size) of 1, a, b (0, 1, 2), size at least 2, from `numbers` (N, 2 size + 2).

    The distance of the last reset from the end is uniform in 1 .. size - 1, where uniform letters
    would put it near the end. a and b occur equally often, so counts do not tell which came last.
    Words are uniform given the distance.
    """
    last = size - 1 - choose(numbers[:, 0], size - 1)  # position of the last reset, (N,)
    earlier = np.empty_like(last)  # resets before it, an odd number
    for position in range(1, size):
        rows = last == position
        shares = _earlier_shares(position)[:-1]
        earlier[rows] = 1 + 2 * np.searchsorted(shares, numbers[rows, 1], side="right")
    place = np.arange(size)
    keys = np.where(place < last[:, None], numbers[:, 2 : 2 + size], 2.0)
    reset = (_rank(keys) < earlier[:, None]) | (place == last[:, None])
    keys = np.where(reset, numbers[:, 2 + size :], 2.0)
    first_half = _rank(keys) < ((earlier + 1) // 2)[:, None]
    words = np.zeros(reset.shape, np.int64)
    words[reset] = 2
    words[reset & first_half] = 1
    return words


def _rank(keys: np.ndarray) -> np.ndarray:
    return keys.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")
