"""Infinite words u v v v .. over a finite monoid, and membership in a recognised set.

u v^ω is in [P] if the running product passes through P infinitely often: weak recognition by linked
pairs (Fleischer and Kufleitner 2019), all pairs (s, e) with s in P, where s e = s and e e = e iff s
= h(u) h(v)^i h(x) recurs at every further turn of y x, v = x y.
"""

from __future__ import annotations

import random

from tasks.monoids import Monoid

PERIOD = 4  # letters of v
ATTEMPTS = 100


def accepted(monoid: Monoid) -> set[int]:
    """P: a twentieth of a group's elements, or the flip-flop's state a. About half of uniform words
    over all letters are in [P] (A5 and S5), two in five over three letters."""
    return set(range(max(1, len(monoid) // 20))) if monoid.is_group else {1}


def passes(monoid: Monoid, u: list[int], v: list[int]) -> tuple[list[int], list[list[int]], int]:
    """Products along u, those along each v until the value at its end recurs, and from which pass
    on they repeat."""
    table = monoid.table
    state, along_u = 0, []
    for letter in u:
        state = int(table[state, letter])
        along_u.append(state)
    ends, found = [state], []
    while True:
        products = []
        for letter in v:
            state = int(table[state, letter])
            products.append(state)
        found.append(products)
        if state in ends:
            return along_u, found, ends.index(state)
        ends.append(state)


def is_accepted(monoid: Monoid, u: list[int], v: list[int]) -> bool:
    _, found, first = passes(monoid, u, v)
    return any(state in accepted(monoid) for products in found[first:] for state in products)


def most_passes(monoid: Monoid) -> int:
    """The maximal number of passes through v until a value recurs."""
    return max(len(passes(monoid, [], [g])[1]) for g in range(len(monoid)))


def draw_word(
    rng: random.Random, monoid: Monoid, letters: tuple[int, ...], size: int
) -> tuple[list[int], list[int]]:
    """Draw u and v uniformly, `size` letters together, given an answer drawn by a fair coin. If
    `ATTEMPTS` draws do not give this answer, the last one is kept."""
    wanted = rng.random() < 0.5
    for _ in range(ATTEMPTS):
        word = rng.choices(letters, k=size)
        u, v = word[:-PERIOD], word[-PERIOD:]
        if is_accepted(monoid, u, v) == wanted:
            break
    return u, v


def solve(monoid: Monoid, prompt: list[str]) -> tuple[list[str], list[str]]:
    """Chain and answer of `u | v <sep>`: products along u, then along v until the value at its end
    recurs."""
    bar = prompt.index("|")
    u, v = ([monoid.number[t] for t in part] for part in (prompt[:bar], prompt[bar + 1 : -1]))
    along_u, found, _ = passes(monoid, u, v)
    chain = [*along_u, *(state for products in found for state in products)]
    answer = "yes" if is_accepted(monoid, u, v) else "no"
    return [*(monoid.elements[state] for state in chain), "<sep>"], [answer]
