"""Word and closure problems compared with the oracle, their distributions, and their monoids."""

from functools import partial
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import drawn_lines
from oracles.mutations import mutants
from oracles.words import identity, judge_closure, judge_word, omega_member, times, value
from two_samples import deviation

from tasks.closure import Closure, draw_visits
from tasks.monoids import DEFINITIONS, monoid_of
from tasks.word import Word, accepted, is_accepted
from tasks.words import words_to

MONOIDS = ["S3", "A4", "S4", "A5", "S5", "A4xZ5", "Z60", "Z5", "flip-flop"]
KINDS = Closure.kind_names
GROUPS = {"A5": 14, "S5": 14, "Z5": 14, "Z60": 14, "A4xZ5": 14, "S3": 10, "A4": 12}  # and sizes
ORDERS = {"S3": 6, "A4": 12, "S4": 24, "A5": 60, "S5": 120, "A4xZ5": 60, "Z60": 60, "Z5": 5}
ABELIANISATIONS = {"S3": 2, "A4": 3, "S4": 2, "A5": 1, "S5": 2, "A4xZ5": 15, "Z60": 60, "Z5": 5}
INDICES = {"A5": 5, "S5": 5, "Z5": 5, "Z60": 5, "A4xZ5": 5, "S3": 3, "A4": 4, "S4": 4, "Z7": 7}
NAMES = [*DEFINITIONS, "Z2", "Z5", "Z60"]


@pytest.mark.parametrize("name", NAMES)
def test_table_matches_composed_maps(name):
    found, mul = monoid_of(name), times(name)
    assert found.elements[0] == identity(name)
    assert len(set(found.elements)) == len(found) and len(found.letters) == min(3, len(found))
    expected = [[found.number[mul(a, b)] for b in found.elements] for a in found.elements]
    assert found.table.tolist() == expected


@pytest.mark.parametrize("name", ORDERS)
def test_orders_and_abelianisations(name):
    group = monoid_of(name)
    assert group.is_group
    assert (group.table[np.arange(len(group)), group.inverse] == 0).all()
    assert len(group) == ORDERS[name]
    assert group.generated(list(group.commutators)) == group.commutators
    assert len(group) // len(group.commutators) == ABELIANISATIONS[name]


@pytest.mark.parametrize("name", INDICES)
def test_subgroups_have_the_expected_index(name):
    group = monoid_of(name)
    assert group.generated(list(group.subgroup)) == group.subgroup
    assert len(group) == INDICES[name] * len(group.subgroup)
    if name in ("S3", "A4", "S4", "A5", "S5"):
        fixing = [i for i, element in enumerate(group.elements) if element[0] == "1"]
        assert list(group.subgroup) == fixing


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


@pytest.mark.parametrize("format", ["cot", "direct"])
@pytest.mark.parametrize(("name", "size"), GROUPS.items())
def test_lines_of_closure_match_the_definition(name, size, format):
    task, group = Closure(size, format, name), monoid_of(name)
    subset = {group.elements[i] for i in group.subgroup}
    for line in drawn_lines(task, 20):
        assert judge_closure(line, name, subset, task.r, format) is None, line
        assert task.check(line.split()) is None


def test_kinds_worked_by_hand():
    task = Closure(5, monoid="S3", r=2, subset=["123", "132"])
    for word, answer, kind in (
        ("213 312 123 213 312", "yes", "yes"),
        ("213 213 213 213 123", "yes", "yes"),
        ("213 312 123 213 123", "no", "ends outside F"),
        ("213 123 123 213 123", "no", "gap too long"),
    ):
        sequence = task.complete([*word.split(), "<sep>"])
        (found,) = task.kinds(task.encode([sequence]))
        assert (sequence.answer, task.kind_names[found]) == ([answer], kind)


def test_visits_match_uniform_words_of_each_kind():
    """Compared with all 2^8 visit patterns, weighted as independent visits of probability 1 / 3."""
    index, r, size = 3, 3, 8
    drawn = draw_visits(index, r, np.random.default_rng(0).random((40_000, size + 1)))
    weights: dict[str, dict[tuple[bool, ...], float]] = {kind: {} for kind in KINDS}
    for visits in product([False, True], repeat=size):
        kind = kind_of(visits, r)
        if kind is not None:
            count = sum(visits)
            weights[kind][visits] = (1 / 3) ** count * (2 / 3) ** (size - count)
    expected = []
    for kind, share in zip(KINDS, (0.5, 0.25, 0.25), strict=True):
        total = sum(weights[kind].values())
        for visits, weight in weights[kind].items():
            expected += [visits] * round(400_000 * share * weight / total)
    assert deviation(map(tuple, drawn.tolist()), expected) < 3.5


def kind_of(visits: tuple[bool, ...], r: int) -> str | None:
    """Kind of a visit pattern; None if it is never drawn."""
    times = [0, *(i for i, visit in enumerate(visits, start=1) if visit)]
    gaps = [b - a for a, b in pairwise(times)]
    open_gap = len(visits) - times[-1]
    if all(gap <= r for gap in gaps):
        return KINDS[0] if open_gap == 0 else (KINDS[1] if open_gap <= r else None)
    long = [gap for gap in gaps if gap > r]
    return KINDS[2] if open_gap == 0 and len(long) == 1 and long[0] <= 2 * r else None
