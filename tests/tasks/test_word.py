from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import drawn_lines
from oracles.mutations import mutants
from oracles.words import judge_closure, judge_word, omega_member, value
from two_samples import deviation

from tasks.closure import Closure
from tasks.monoids import monoid_of
from tasks.word import Word, accepted, is_accepted
from tasks.words import words_to

MONOIDS = ["S3", "A4", "S4", "A5", "S5", "A4xZ5", "Z60", "Z5", "flip-flop"]


@pytest.mark.parametrize("letters", ["three", "all"])
@pytest.mark.parametrize("name", MONOIDS)
def test_lines_match_the_definition(name, letters):
    for format, question in (*product(("cot", "direct"), ("value", "member")), ("tagged", "value")):
        task = Word(7, format, name, letters, question)
        for line in drawn_lines(task, 15):
            assert judge_word(line, name, format, question) is None, line
            assert task.check(line.split()) is None


OF_S3 = [
    (Word(5, "cot", "S3", "all", "member"), partial(judge_word, question="member")),
    (Word(5, "tagged", "S3", "all"), partial(judge_word, format="tagged")),
    (Closure(6, monoid="S3", r=2), partial(judge_closure, subset={"123", "132"}, r=2)),
]


@pytest.mark.parametrize(("task", "judge"), OF_S3, ids=["member", "tagged", "closure"])
def test_check_agrees_with_the_oracle_on_damaged_lines(task, judge):
    good = drawn_lines(task, 40)
    damaged = [line.replace("213 <sep>", "312 <sep>") for line in good]
    damaged += [line.replace("reach", "lost", 1) for line in good] + mutants(good, 100, seed=3)
    for line in damaged:
        word = line.split("<sep>")[0].split()
        known = len(word) == task.size and set(word) <= set(monoid_of("S3").elements)
        known = known and set(line.split()) <= set(task.vocabulary.tokens)
        expected = known and judge(line, "S3") is None
        assert (task.check(line.split()) is None) == expected, line


@pytest.mark.parametrize(("name", "target"), [("A4", "2143"), ("S4", "1234"), ("Z5", "3")])
def test_words_with_a_given_product_are_uniform(name, target):
    """Compared with all words of six letters, multiplied by the oracle."""
    found = monoid_of(name)
    letters = tuple(found.number[letter] for letter in found.letters)
    every = product(letters, repeat=6)
    wanted = [w for w in every if value(name, [found.elements[i] for i in w]) == target]
    numbers = np.random.default_rng(0).random((8000, 6))
    drawn = words_to(found, letters, np.full(8000, found.number[target]), numbers)
    assert len(wanted) > 20
    assert set(map(tuple, drawn.tolist())) == set(wanted)
    assert deviation(map(tuple, drawn.tolist()), wanted * (8000 // len(wanted)), 10) < 3.5


@pytest.mark.parametrize("letters", ["three", "all"])
def test_short_words_without_an_alternative_are_drawn_too(letters):
    """With three letters of S4, the only one-letter word in the commutator subgroup is e."""
    task = Word(3, "direct", "S4", letters, "member")
    for size in (1, 2, 3):
        for line in drawn_lines(task.with_parameters(size=size), 40):
            assert task.check(line.split()) is None


@pytest.mark.parametrize("name", ["S3", "A4", "Z5", "flip-flop"])
@settings(max_examples=40)
@given(data=st.data())
def test_acceptance_of_infinite_words_matches_the_oracle(name, data):
    found = monoid_of(name)
    pick = st.lists(st.integers(0, len(found) - 1), min_size=1, max_size=4)
    u, v = data.draw(pick), data.draw(pick)
    words = [[found.elements[i] for i in word] for word in (u, v)]
    accepting = {found.elements[i] for i in accepted(found)}
    expected = omega_member(*words, name, len(found), accepting)
    assert is_accepted(found, u, v) == expected


def test_infinite_words_by_hand():
    """h(u) = 2 and h(v) = 4 in Z5, so v is read five times until 2 recurs."""
    z5 = Word(7, "cot", "Z5", "three", "member", "omega")
    chain, answer = z5.solve("1 1 0 | 1 1 1 1 <sep>".split())
    assert chain == "1 2 2  3 4 0 1  2 3 4 0  1 2 3 4  0 1 2 3  4 0 1 2  <sep>".split()
    assert answer == ["yes"]
    flip_flop = Word(7, "cot", "flip-flop", "three", "member", "omega")
    chain, answer = flip_flop.solve("b 1 1 | 1 1 1 1 <sep>".split())
    assert (" ".join(chain), answer) == ("b b b b b b b <sep>", ["no"])
    chain, answer = flip_flop.solve("b 1 1 | 1 a 1 1 <sep>".split())
    assert " ".join(chain) == "b b b b a a a a a a a <sep>"
