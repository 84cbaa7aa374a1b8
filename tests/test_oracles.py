"""The oracles against tables worked by hand and lines of CoT_benchmark by Feng et al.."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise, product
from pathlib import Path

import pytest
from oracles import arithmetic, edit_distance, lis
from oracles.mutations import mutants

SAMPLES = Path(__file__).parent / "oracles" / "samples"


def sample_lines(name: str) -> list[str]:
    return (SAMPLES / f"{name}.txt").read_text().splitlines()


# Longest increasing subsequences


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([], []),
        ([3, 2, 1], [1, 1, 1]),
        ([5, 5, 5], [1, 1, 1]),
        ([3, 1, 4, 1, 5, 9, 2, 6], [1, 1, 2, 1, 3, 4, 2, 4]),
        ([0, 8, 4, 12, 2, 10, 6, 14], [1, 2, 2, 3, 2, 3, 3, 4]),
    ],
)
def test_lis_lengths_worked_by_hand(numbers: list[int], expected: list[int]) -> None:
    assert lis.lengths(numbers) == expected


# Edit distance


@pytest.mark.parametrize(
    ("first", "second", "textbook", "samples"),
    [
        ("", "", 0, 0),
        ("", "abc", 6, 3),  # three inserted: at 2, or before everything else at 1
        ("a", "a", 0, 0),
        ("a", "b", 3, 3),
        ("a", "ba", 2, 1),  # b goes first
        ("a", "ab", 2, 2),  # b comes after the match
        ("ab", "ba", 4, 3),  # insert b, delete b: 2 + 2; or 1 + 2
        ("kitten", "sitting", 8, 8),  # two replaced and one inserted: 3 + 3 + 2
        ("abc", "xyz", 9, 9),
        ("abcd", "cd", 4, 2),
        ("cd", "cdab", 4, 4),
    ],
)
def test_edit_distance_worked_by_hand(first: str, second: str, textbook: int, samples: int) -> None:
    assert edit_distance.distance(first, second, border=2) == textbook
    assert edit_distance.distance(first, second) == samples
    assert edit_distance.distance(second, first) == samples


ED_LINE = "a b | b a <sep> 3 1 , 1 3 , <sep> 3"
ED_LOCAL_LINE = "a b | b a <sep> 3 1 , b | b a <sep> 1 3 , <sep> 3"


@pytest.mark.parametrize(
    ("judge", "line"), [(edit_distance.judge, ED_LINE), (edit_distance.judge_local, ED_LOCAL_LINE)]
)
def test_edit_distance_misses_no_token(judge: Callable[..., str | None], line: str) -> None:
    tokens = line.split()
    for i in range(len(tokens)):
        assert judge(" ".join(tokens[:i] + tokens[i + 1 :]), 2) is not None


def test_local_chain_of_three_rows() -> None:
    line = "a b c | x y z w <sep> "
    line += "3 4 5 6 , b c | x y z w <sep> 4 6 7 8 , c | x y z w <sep> 5 7 9 10 , <sep> 10"
    assert edit_distance.judge_local(line, 3) is None


# Arithmetic


VALUES = {
    "7": 7, "7 + 8": 4, "3 - 9": 5, "7 * 8": 1, "1 / 2": 6, "2 + 3 * 4": 3, "( 2 + 3 ) * 4": 9,
    "9 - 4 - 3": 2, "9 - ( 4 - 3 )": 8, "8 / 4 / 2": 1, "8 / ( 4 / 2 )": 4, "8 / 4 * 2": 4,
    "0 / 10": 0, "4 / 5": 3,  # 5 * 3 = 15 = 4
}  # fmt: skip


@pytest.mark.parametrize("expression", VALUES)
def test_arithmetic_value(expression: str) -> None:
    assert arithmetic.value(arithmetic.parse(expression)) == VALUES[expression]


def test_arithmetic_is_that_of_a_field() -> None:
    for a, b in product(range(11), repeat=2):
        assert arithmetic.operate(arithmetic.operate(a, "-", b), "+", b) == a
        if b:
            assert arithmetic.operate(arithmetic.operate(a, "/", b), "*", b) == a
        else:
            with pytest.raises(arithmetic.Invalid, match="zero"):
                arithmetic.operate(a, "/", b)


NO_VALUE = [
    "", "+", "- 3", "1 +", "2 * * 3", "( 1 + 2", "1 + 2 )", "2 ( 3 )", "1 2", "11 + 1", "01 + 1",
    "( 3 ) + 1", "( )", "x + 1", "1 % 2", "1 / 0", "1 / ( 6 - 6 )", "( 1 , 2 )", "3 / / 2",
]  # fmt: skip


@pytest.mark.parametrize("expression", NO_VALUE)
def test_arithmetic_has_no_value(expression: str) -> None:
    with pytest.raises(arithmetic.Invalid):
        arithmetic.value(arithmetic.parse(expression))


LEFTMOST = {
    "1 + 2": "3", "1 + 2 + 3": "3 + 3", "1 + 2 * 3": "1 + 6", "1 * 2 + 3 * 4": "2 + 3 * 4",
    "1 - ( 2 - 3 )": "1 - 10", "1 - ( 2 - 3 - 4 )": "1 - ( 10 - 4 )",
    "( 1 + 2 ) * ( 3 + 4 )": "3 * ( 3 + 4 )",
    "6 + 2 * ( 1 + 1 ) + 3 * 3": "6 + 2 * 2 + 3 * 3",
    "6 - ( 2 + 3 * 4 ) + 5 * 6": "6 - ( 2 + 1 ) + 5 * 6",
    "5 + 8 / ( 4 / 2 * 2 )": "5 + 8 / ( 2 * 2 )",
}  # fmt: skip


@pytest.mark.parametrize("expression", LEFTMOST)
def test_leftmost_reduction(expression: str) -> None:
    assert arithmetic.leftmost_reduction(expression) == LEFTMOST[expression]
    assert LEFTMOST[expression] in arithmetic.reductions(expression)


def test_reductions_of_every_adjacent_pair() -> None:
    assert arithmetic.reductions("4 - 3 + ( 1 + 2 ) * 5 / 0") == [
        "1 + ( 1 + 2 ) * 5 / 0",
        "4 - 3 + 3 * 5 / 0",
    ]
    assert arithmetic.reductions("1 + 2 + 3") == ["3 + 3", "1 + 5"]
    assert arithmetic.reductions("1 - 2 - 3") == ["10 - 3"]
    assert arithmetic.reductions("2 * 3 / 4") == ["6 / 4", "2 * 9"]
    assert arithmetic.reductions("2 / 3 * 4") == ["8 * 4"]
    assert arithmetic.reductions("( 5 - 2 + 3 ) * 4 - 1") == ["( 3 + 3 ) * 4 - 1"]


def test_needless_brackets() -> None:
    needed = ["1 + 2", "1 - ( 2 + 3 )", "( 1 - 2 ) * 3", "2 / ( 3 * 4 )"]
    needless = ["1 + ( 2 + 3 )", "( 1 - 2 ) + 3", "2 * ( 3 / 4 )", "2 - ( 3 * 4 )"]
    assert not any(map(arithmetic.needless_brackets, needed))
    assert all(map(arithmetic.needless_brackets, [*needless, "2 - ( ( 3 + 4 ) )"]))


# Lines that CoT_benchmark wrote

JUDGES = {
    "arithmetic-6": partial(arithmetic.judge, size=6),
    "arithmetic-16": partial(arithmetic.judge, size=16),
    "lis-40": partial(lis.judge, size=40),
    "lis-110": partial(lis.judge, size=110),
    "ed-6": partial(edit_distance.judge, size=6),
    "ed-20": partial(edit_distance.judge, size=20),
}


@pytest.mark.parametrize("name", JUDGES)
def test_sample_lines_are_accepted(name: str) -> None:
    lines = sample_lines(name)
    assert len(lines) == 10
    assert [JUDGES[name](line) for line in lines] == [None] * 10


@pytest.mark.parametrize("name", JUDGES)
def test_damaged_chains_are_rejected(name: str) -> None:
    """Behind the prompt nothing is free, so that each change there is a mistake."""
    marker = "=" if name.startswith("arithmetic") else "<sep>"
    for mutant in mutants(sample_lines(name), 300, seed=1, after_prompt=marker):
        assert JUDGES[name](mutant) is not None, mutant


@pytest.mark.parametrize("name", JUDGES)
def test_chain_of_another_prompt_is_rejected(name: str) -> None:
    marker = " = " if name.startswith("arithmetic") else " <sep> "
    halves = [line.split(marker, 1) for line in sample_lines(name)]
    for (prompt, _), (_, chain) in pairwise(halves):
        assert JUDGES[name](prompt + marker + chain) is not None


def test_samples_have_no_needless_brackets() -> None:
    for name in ("arithmetic-6", "arithmetic-16"):
        for line in sample_lines(name):
            assert not arithmetic.needless_brackets(line.split(" = ")[0]), line
