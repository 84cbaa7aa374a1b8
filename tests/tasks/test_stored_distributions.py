"""Stored sets have the distributions that the tasks' documents state, in both splits.

Distinct prompts run out: of far resets, of short words with product e, of short strings.
"""

import functools
import itertools
import json
from collections import Counter

import numpy as np
import pytest
from two_samples import deviation

from tasks.closure import KINDS, Closure
from tasks.copying import Copying
from tasks.data import DataConfig, build, load_or_build
from tasks.match3 import Match3
from tasks.word import FIRST, Word


def words(task, sequences):
    """The letters of each word by number."""
    marker = task.vocabulary.index[task.answer_marker]
    rows = [
        list(row[:n]) for row, n in zip(sequences.tokens, sequences.prompt_lengths, strict=True)
    ]
    return [tuple(int(i) - FIRST for i in row if i != marker) for row in rows]


def resets(word):
    """How far the last reset is from the end, which one it is, how many there are."""
    last = max(i for i, letter in enumerate(word) if letter)
    return len(word) - last, word[last], sum(letter > 0 for letter in word)


@pytest.mark.parametrize("format", ["cot", "tagged", "online"])
def test_resets_of_the_flip_flop_are_as_far_as_there_are_words(format):
    """Equal shares of all distances but those whose words run out: most of these are stored."""
    task, counts = Word(9, format, "flip-flop"), {"train": 1500, "validation": 60, "test": 240}
    sets, _ = build(task.with_parameters(format="cot"), DataConfig(**counts), progress=False)
    tagged, _ = build(task, DataConfig(**counts), progress=False)
    assert (tagged["train"].prompt_lengths == (10 if format == "cot" else 2)).all()
    every = [w for w in itertools.product(range(3), repeat=9) if w.count(1) == w.count(2) > 0]
    there = Counter(resets(word)[0] for word in every)
    found = {split: [resets(word) for word in words(task, own)] for split, own in sets.items()}
    stored = Counter(distance for own in found.values() for distance, *_ in own)
    level = (1800 - sum(stored[d] for d, n in there.items() if n < 300)) / sum(
        n > 300 for n in there.values()
    )
    for distance in range(1, 9):
        if there[distance] < 300:  # nine tenths, as many of either letter, rounded down
            assert 0.8 * there[distance] - 6 <= stored[distance] <= 0.9 * there[distance]
        else:
            assert abs(stored[distance] - level) < 4.5 * level**0.5
    shares = [(d, last) for d, last, _ in found["train"]]
    assert deviation([(d, last) for d, last, _ in found["test"]], shares) < 3.5
    assert abs(np.mean([last == 1 for _, last in shares]) - 0.5) < 0.05
    for distance in (1, 2, 3):
        own = [n for d, _, n in found["train"] if d == distance]
        expected = [n for d, _, n in map(resets, every) if d == distance]
        assert deviation(own, expected) < 3.5


@functools.cache
def members(task):
    """A set in which short lengths run out of words."""
    train, test = (6000, 500) if task.size > 7 else (300, 50)
    return build(task, DataConfig(train=train, validation=0, test=test), progress=False)


OF_FEW_LETTERS = [Word(size, "direct", name, question="member")
                  for name, size in (("A4", 11), ("A5", 13))]  # fmt: skip
OTHERS = [
    Word(13, "direct", "Z60", question="member"),
    Word(9, "direct", "S4", "all", "member"),
    Word(7, "direct", "S3", question="member", tail="omega"),
    Match3(4, modulus=17),
]


@pytest.mark.parametrize("task", [*OF_FEW_LETTERS, *OTHERS], ids=lambda task: f"{task.parameters}")
def test_half_of_the_answers_are_yes_at_every_length(task):
    """Where a length runs out of either answer, both end."""
    sets, ran_out = members(task)
    yes = task.vocabulary.index["yes"]
    for own in (sets["train"], sets["test"]):
        for length in set(own.prompt_lengths.tolist()):
            answers = own.last_tokens[own.prompt_lengths == length] == yes
            assert abs(answers.sum() - len(answers) / 2) <= 4.5 * 0.5 * len(answers) ** 0.5
    assert (task.size > 7) == bool(ran_out)


@pytest.mark.parametrize("task", OF_FEW_LETTERS, ids=lambda task: task.monoid)
def test_letter_counts_of_members_tell_no_answer_of_a_stored_set(task):
    sets, _ = members(task)
    for own in (sets["train"], sets["test"]):
        counts = [tuple(sorted(Counter(word).items())) for word in words(task, own)]
        by_answer = {yes: [] for yes in (True, False)}
        for count, yes in zip(counts, own.last_tokens == task.vocabulary.index["yes"], strict=True):
            by_answer[bool(yes)].append(count)
        assert deviation(by_answer[True], by_answer[False]) < 3.5


def test_closure_has_its_kinds_at_every_length():
    """Of four letters of S3 there are 1,296 words."""
    task = Closure(6, "direct", "S3", r=2)
    sets, ran_out = build(task, DataConfig(train=4000, validation=0, test=300), progress=False)
    assert ran_out
    for own in (sets["train"], sets["test"]):
        for length in set(own.prompt_lengths.tolist()):
            rows = np.flatnonzero(own.prompt_lengths == length)
            kinds = Counter(task.kind_of(task.decode(own, row)) for row in rows)
            for kind, share in zip(KINDS, (0.5, 0.25, 0.25), strict=True):
                spread = 4.5 * (len(rows) * share * (1 - share)) ** 0.5
                assert abs(kinds[kind] - len(rows) * share) <= spread + 1


def test_letters_of_products_are_uniform_in_stored_sets():
    task = Word(6, "direct", "S3", "all")
    sets, _ = build(task, DataConfig(train=4000, validation=0, test=2000), progress=False)
    for own in (sets["train"], sets["test"]):
        letters = [w for word in words(task, own) for w in enumerate(word)]
        expected = [(i, x) for word in words(task, own) for i in range(len(word)) for x in range(6)]
        assert deviation(letters, expected) < 3.5


def test_what_ran_out_stands_beside_the_set(tmp_path):
    """Copies of one letter and of two: 3 and 9; longer strings fill up."""
    task, config = Copying(4, alphabet_size=3), DataConfig(train=60, validation=0, test=10)
    path = load_or_build(task, config, tmp_path, progress=False).path
    ran_out = json.loads((path / "meta.json").read_text())["ran_out"]
    assert [(own["size"], own["planned"]["train"], own["found"]["train"]) for own in ran_out] == [
        (1, 15, 3), (2, 15, 9),
    ]  # fmt: skip
    task, config = Word(9, monoid="flip-flop"), DataConfig(train=900, validation=0, test=100)
    path = load_or_build(task, config, tmp_path, progress=False).path
    [own] = json.loads((path / "meta.json").read_text())["ran_out"]
    assert own["found"] == own["planned"] and {5, 6, 7, 8} <= set(own["groups"])
