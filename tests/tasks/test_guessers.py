"""Letter counts do not reveal the answer, or only as much as the documentation says."""

import re

import numpy as np
import pytest
from processes import ROOT

from tasks.closure import FIRST as CLOSURE_FIRST
from tasks.closure import Closure
from tasks.monoids import Monoid, monoid
from tasks.word import FIRST as WORD_FIRST
from tasks.word import Word
from tasks.words import prefix_products

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


def letters_and_answers(task, first):
    """Letter indices (N, n), letter counts (N, letters), and whether the answer is yes."""
    drawn = task.draw(11, 0, 0, N)
    letters = drawn.tokens[:, : task.size].astype(np.int64) - first
    counts = (letters[:, :, None] == np.arange(len(monoid(task.monoid)))).sum(1)
    return letters, counts, drawn.last_tokens == task.vocabulary.index["yes"]


@pytest.mark.parametrize("letters", ["three", "all"])
@pytest.mark.parametrize("name", ["A5", "S5", "A4xZ5"])
def test_letter_counts_do_not_reveal_membership(name, letters):
    task = Word(16, "direct", name, letters, "member")
    words, counts, answer = letters_and_answers(task, WORD_FIRST)
    assert 0.48 < linear_accuracy(counts[:, counts.any(0)], answer) < 0.52
    if name == "S5":
        odd = np.array([sum(a > b for i, a in enumerate(p) for b in p[i + 1 :]) % 2
                        for p in monoid(name).elements])  # fmt: skip
        parity = odd[words].sum(1) % 2
        assert 0.48 < table_accuracy(parity, answer) < 0.52


@pytest.mark.parametrize(("name", "share"), [("A4", 57), ("A5", 57), ("S4", 61), ("S5", 64)])
def test_one_count_and_equal_neighbours_partly_reveal_membership(name, share):
    words, counts, answer = letters_and_answers(
        Word(16, "direct", name, "three", "member"), WORD_FIRST
    )
    equal = (words[:, 1:] == words[:, :-1]).sum(1)
    used = np.flatnonzero(counts.any(0))
    best = max(table_accuracy(32 * counts[:, letter] + equal, answer) for letter in used)
    assert 100 * best == pytest.approx(share, abs=2)
    text = (ROOT / "docs" / "word_problems.md").read_text()
    assert re.search(rf"{share} % \([A-Z0-9, ]*{name}", text)


@pytest.mark.parametrize(("name", "share"), [("A5", 0.62), ("S5", 0.71)])
def test_letters_of_v_partly_reveal_the_answer_for_infinite_words(name, share):
    task = Word(12, "direct", name, question="member", tail="omega")
    drawn = task.draw(0, 1, 0, 3000)
    lines = [task.decode(drawn, row) for row in range(3000)]
    v = [" ".join(sorted(line.prompt[line.prompt.index("|") + 1 : -1])) for line in lines]
    answer = np.array([line.answer == ["yes"] for line in lines])
    told = table_accuracy(np.unique(v, return_inverse=True)[1], answer)
    assert told == pytest.approx(share, abs=0.05)
    assert abs(answer.mean() - 0.5) < 0.05


@pytest.mark.parametrize("name", ["A5", "Z5"])
@pytest.mark.parametrize(("size", "by_visits"), [(16, 0.73), (32, 0.67), (64, 0.62)])
def test_letter_counts_do_not_reveal_closure(name, size, by_visits):
    """Whether a word ends in F predicts 3 of 4 answers, the number of visits some of them."""
    task = Closure(size, "direct", name)
    words, counts, answer = letters_and_answers(task, CLOSURE_FIRST)
    group = monoid(name)
    assert linear_accuracy(counts, answer) < 0.53
    visits = np.isin(prefix_products(group, words), group.subgroup).astype(int)
    assert table_accuracy(visits[:, -1], answer) == pytest.approx(0.75, abs=0.02)
    assert table_accuracy(visits.sum(1), answer) == pytest.approx(by_visits, abs=0.02)


def best_guess_from_counts(monoid: Monoid, letters: tuple[int, ...], size: int) -> float:
    """Exact accuracy of the best guess of the product from letter counts, for words of `size`
    uniform `letters` (table in docs/word_problems.md)."""
    found = {(): np.eye(len(monoid))[0]}
    for _ in range(size):
        longer: dict[tuple[int, ...], np.ndarray] = {}
        for counts, shares in found.items():
            for letter in letters:
                key = tuple(sorted((*counts, letter)))
                after = longer.setdefault(key, np.zeros(len(monoid)))
                np.add.at(after, monoid.table[:, letter], shares / len(letters))
        found = longer
    return float(sum(shares.max() for shares in found.values()))


@pytest.mark.parametrize("name", ["Z60", "A4xZ5", "A5"])
def test_best_guess_from_counts_matches_the_documentation(name):
    group = monoid(name)
    letters = tuple(group.number[letter] for letter in group.letters)
    text = (ROOT / "docs" / "word_problems.md").read_text()
    sizes, shares = (
        re.search(rf"^\| {start} \| ([\d.| ]*) \|$", text, re.MULTILINE)[1].split(" | ")
        for start in ("n", name)
    )
    for size, share in zip(map(int, sizes), map(float, shares), strict=True):
        assert 100 * best_guess_from_counts(group, letters, size) == pytest.approx(share, abs=0.051)
