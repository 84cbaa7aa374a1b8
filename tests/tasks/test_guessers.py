"""Letter counts do not reveal the answer, or only as much as the documentation says."""

import functools
import itertools
import re

import numpy as np
import pandas as pd
import pytest
from processes import ROOT

from tasks.closure import FIRST as CLOSURE_FIRST
from tasks.closure import Closure
from tasks.monoids import Monoid, monoid_of
from tasks.word import FIRST as WORD_FIRST
from tasks.word import Word, is_accepted
from tasks.words import prefix_products

TEXT = (ROOT / "docs" / "word_problems.md").read_text()
N = 16_000  # half of them for testing: the standard deviation is 0.0056


def linear_accuracy(features: np.ndarray, answer: np.ndarray) -> float:
    """Accuracy on the second half of a least-squares fit to the first; (N, k) and (N,) bool."""
    x, half = np.column_stack([np.ones(len(features)), features]), len(features) // 2
    weights = np.linalg.lstsq(x[:half], 2.0 * answer[:half] - 1, rcond=None)[0]
    return float(((x[half:] @ weights > 0) == answer[half:]).mean())


def table_accuracy(feature: np.ndarray, answer: np.ndarray) -> float:
    """Accuracy on the second half when each value of `feature` (N,) predicts its most frequent
    answer in the first half."""
    half = len(feature) // 2
    yes = np.bincount(feature[:half], answer[:half] - 0.5, feature.max() + 1) >= 0
    return float((yes[feature[half:]] == answer[half:]).mean())


def letters_and_answers(task, first, count=N):
    """Letter indices (N, n), letter counts (N, letters), and whether the answer is yes."""
    drawn = task.draw(11, 0, 0, count)
    letters = drawn.tokens[:, : task.size].astype(np.int64) - first
    counts = (letters[:, :, None] == np.arange(len(monoid_of(task.monoid)))).sum(1)
    return letters, counts, drawn.last_tokens == task.vocabulary.index["yes"]


@pytest.mark.parametrize("letters", ["three", "all"])
@pytest.mark.parametrize("name", ["A5", "S5", "A4xZ5"])
def test_letter_counts_do_not_reveal_membership(name, letters):
    task = Word(16, "direct", name, letters, "member")
    words, counts, answer = letters_and_answers(task, WORD_FIRST)
    assert 0.48 < linear_accuracy(counts[:, counts.any(0)], answer) < 0.52
    if name == "S5":
        odd = np.array([sum(a > b for i, a in enumerate(p) for b in p[i + 1 :]) % 2
                        for p in monoid_of(name).elements])  # fmt: skip
        parity = odd[words].sum(1) % 2
        assert 0.48 < table_accuracy(parity, answer) < 0.52


@pytest.mark.parametrize(("name", "share"), [("A5", 58), ("A4", 59), ("S4", 61), ("S5", 64)])
def test_one_count_and_equal_neighbours_partly_reveal_membership(name, share):
    task = Word(16, "direct", name, "three", "member")
    words, counts, answer = letters_and_answers(task, WORD_FIRST, 60_000)
    equal = (words[:, 1:] == words[:, :-1]).sum(1)
    used = np.flatnonzero(counts.any(0))
    best = max(table_accuracy(32 * counts[:, letter] + equal, answer) for letter in used)
    assert 100 * best == pytest.approx(share, abs=0.8)
    assert "reach 58, 59, 61, 64 % (A5, A4, S4, S5) at n = 16" in TEXT


@pytest.mark.parametrize("name", ["A5", "S5"])
def test_letter_counts_partly_reveal_the_answer_for_infinite_words(name):
    """Exactly, at n = 16: words u of 12 letters, v of 4, half of the answers yes."""
    group, cases = monoid_of(name), []
    for v in itertools.product(map(group.number.get, group.letters), repeat=4):
        told = np.array([is_accepted(group, [state], list(v)) for state in range(len(group))])
        for counts, shares in shares_by_counts(group, 12).items():
            cases.append((*counts, *sorted(v), shares @ told, shares @ ~told))
    yes, no = pd.DataFrame(cases).groupby(list(range(16))).sum().to_numpy().T
    best = np.maximum(yes / yes.sum(), no / no.sum()).sum() / 2
    assert re.search(rf"counts reach [^;.]*\b{100 * best:.0f} % \({name}\)", TEXT)


@pytest.mark.parametrize("name", ["A5", "Z5"])
@pytest.mark.parametrize(("size", "by_visits"), [(16, 0.73), (32, 0.66), (64, 0.62)])
def test_letter_counts_do_not_reveal_closure(name, size, by_visits):
    """Whether a word ends in F predicts 3 of 4 answers, the number of visits some of them."""
    task = Closure(size, "direct", name)
    words, counts, answer = letters_and_answers(task, CLOSURE_FIRST)
    group = monoid_of(name)
    assert linear_accuracy(counts, answer) < 0.53
    visits = np.isin(prefix_products(group, words), group.subgroup).astype(int)
    assert table_accuracy(visits[:, -1], answer) == pytest.approx(0.75, abs=0.02)
    assert table_accuracy(visits.sum(1), answer) == pytest.approx(by_visits, abs=0.02)


@functools.cache
def shares_by_counts(monoid: Monoid, size: int) -> dict:
    """The share of words of `size` letters, uniform among three, by sorted letters and product."""
    letters = [monoid.number[letter] for letter in monoid.letters]
    found = {(): np.eye(len(monoid))[0]}
    for _ in range(size):
        longer: dict = {}
        for counts, shares in found.items():
            for letter in letters:
                after = longer.setdefault((*sorted((*counts, letter)),), np.zeros(len(monoid)))
                np.add.at(after, monoid.table[:, letter], shares / len(letters))
        found = longer
    return found


@pytest.mark.parametrize("name", ["Z60", "A4xZ5", "A5"])
def test_best_guess_from_counts_matches_the_documentation(name):
    sizes, shares = (
        re.search(rf"^\| {start} \| ([\d.| ]*) \|$", TEXT, re.MULTILINE)[1].split(" | ")
        for start in ("n", name)
    )
    for size, share in zip(map(int, sizes), map(float, shares), strict=True):
        best = sum(known.max() for known in shares_by_counts(monoid_of(name), size).values())
        assert 100 * best == pytest.approx(share, abs=0.051)
