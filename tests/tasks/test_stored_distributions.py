"""Stored sets have the documented distributions in both splits.

Some kinds have few distinct prompts: distant resets, short words with product e, short strings.
"""

import itertools
from collections import Counter

import numpy as np
import pytest
from two_samples import deviation

from tasks.closure import Closure
from tasks.data import DataConfig, build
from tasks.match3 import Match3
from tasks.word import FIRST, Word


def words(task, sequences):
    """The letter indices of each word."""
    marker = task.vocabulary.index[task.answer_marker]
    rows = zip(sequences.tokens.tolist(), sequences.prompt_lengths, strict=True)
    return [tuple(i - FIRST for i in row[:n] if i != marker) for row, n in rows]


def resets(word):
    """Distance of the last reset from the end, its letter, and the number of resets."""
    last = max(i for i, letter in enumerate(word) if letter)
    return len(word) - last, word[last], sum(letter > 0 for letter in word)


def test_flip_flop_words_are_uniform_given_the_distance_of_the_last_reset():
    task = Word(9, "cot", "flip-flop")
    drawn = words(task, task.draw(0, 0, 0, 8000))
    assert all(word.count(1) == word.count(2) for word in drawn)
    found = Counter(resets(word)[0] for word in drawn)
    assert set(found) == set(range(1, 9))
    assert all(abs(count - 1000) < 4.5 * 1000**0.5 for count in found.values())
    every = [w for w in itertools.product(range(3), repeat=9) if w.count(1) == w.count(2) > 0]
    for distance in (1, 2, 3):
        own, expected = ([n for d, _, n in map(resets, some) if d == distance]
                         for some in (drawn, every))  # fmt: skip
        assert deviation(own, expected) < 3.5


OF_FEW_LETTERS = [Word(size, "direct", name, question="member")
                  for name, size in (("A4", 11), ("A5", 13))]  # fmt: skip
OTHERS = [
    Word(13, "direct", "Z60", question="member"),
    Word(9, "direct", "S4", "all", "member"),
    Word(7, "direct", "S3", question="member", tail="omega"),
    Match3(4, modulus=17),
]


@pytest.mark.parametrize("task", [*OF_FEW_LETTERS, *OTHERS], ids=lambda task: f"{task.parameters}")
def test_answers_are_balanced_and_not_revealed_by_letter_counts(task):
    """At every length; when the words of one answer run out at a short length, both stop."""
    train, test = (6000, 500) if task.size > 7 else (300, 50)
    sets = build(task, DataConfig(train, 0, test), progress=False)
    for own in (sets["train"], sets["test"]):
        yes = own.last_tokens == task.vocabulary.index["yes"]
        for length in set(own.prompt_lengths.tolist()):
            answers = yes[own.prompt_lengths == length]
            assert abs(answers.sum() - len(answers) / 2) <= 4.5 * 0.5 * len(answers) ** 0.5
        if task in OF_FEW_LETTERS:
            counts = [tuple(sorted(word)) for word in words(task, own)]
            by_answer = [[counts[i] for i in np.flatnonzero(yes == kind)] for kind in (0, 1)]
            assert deviation(*by_answer) < 3.5


def test_closure_kinds_have_their_shares_at_every_length():
    """There are 1,296 words of four letters of S3."""
    task = Closure(6, "direct", "S3", r=2)
    sets = build(task, DataConfig(train=4000, validation=0, test=300), progress=False)
    for own in (sets["train"], sets["test"]):
        for length in set(own.prompt_lengths.tolist()):
            rows = np.flatnonzero(own.prompt_lengths == length)
            kinds = Counter(task.kinds(own.select(rows)).tolist())
            for kind, share in enumerate((0.5, 0.25, 0.25)):
                spread = 4.5 * (len(rows) * share * (1 - share)) ** 0.5
                assert abs(kinds[kind] - len(rows) * share) <= spread + 1


def test_letters_are_uniform_in_stored_sets():
    task = Word(6, "direct", "S3", "all")
    sets = build(task, DataConfig(train=4000, validation=0, test=2000), progress=False)
    for own in (sets["train"], sets["test"]):
        letters = [w for word in words(task, own) for w in enumerate(word)]
        expected = [(i, x) for word in words(task, own) for i in range(len(word)) for x in range(6)]
        assert deviation(letters, expected) < 3.5
