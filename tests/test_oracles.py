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


@pytest.mark.parametrize(
    ("line", "size", "format", "reason"),
    [
        ("5 9 7 <sep> 1 2 2 <sep> 2", 3, "cot", None),
        ("5 9 7 <sep> 2", 3, "direct", None),
        ("5 9 7 <sep> 1 2 2 <sep> 2", 3, "direct", "2 <sep>"),
        ("5 9 7 <sep> 2", 3, "cot", "1 <sep>"),
        ("5 9 7 <sep> 1 2 2 <sep> 2", 4, "cot", "3 numbers"),
        ("5 9 7 <sep> 1 2 3 <sep> 3", 3, "cot", "the lengths"),
        ("5 9 7 <sep> 1 2 2 <sep> 3", 3, "cot", "the answer"),
        ("5 9 7 <sep> 1 2 2 <sep> 2 2", 3, "cot", "the answer"),
        ("5 9 7 <sep> 1 2 2 <sep>", 3, "cot", "the answer"),
        ("3 9 7 <sep> 1 2 2 <sep> 2", 3, "cot", "outside"),
        ("5 250 7 <sep> 1 2 2 <sep> 2", 3, "cot", "outside"),
        ("5 x 7 <sep> 1 2 2 <sep> 2", 3, "cot", "not a number"),
        ("05 9 7 <sep> 1 2 2 <sep> 2", 3, "cot", "not a number"),
        ("", 3, "cot", "0 <sep>"),
    ],
)
def test_lis_judge(line: str, size: int, format: str, reason: str | None) -> None:
    verdict = lis.judge(line, size, format)
    assert verdict is None if reason is None else reason in str(verdict)


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
    ("line", "size", "format", "valid"),
    [
        (ED_LINE, 2, "cot", True),
        (ED_LINE, 2, "direct", False),
        (ED_LOCAL_LINE, 2, "cot", False),
        ("a b | b a <sep> 3", 2, "direct", True),
        ("a b | b a <sep> 4", 2, "direct", False),
        ("a b | b a <sep> 3", 2, "cot", False),
        (ED_LINE, 6, "cot", False),  # six letters in neither
        ("a | a b <sep> 0 2 , <sep> 2", 2, "cot", True),
        ("a | a b <sep> 0 2 , <sep> 2", 1, "cot", True),
        ("a b | a <sep> 0 , 2 , <sep> 2", 2, "cot", False),  # longer first
        ("a | a <sep> 0 , <sep> 0", 1, "cot", False),  # equal
        ("a | a a a a <sep> 6", 1, "direct", False),  # more than 2 longer than size
        ("| a <sep> <sep> 1", 1, "cot", False),
        ("a 7 | 7 a <sep> 3 1 , 1 3 , <sep> 3", 2, "cot", False),
        ("ab | b a <sep> 3 1 , 1 3 , <sep> 3", 2, "cot", False),
        ("", 2, "cot", False),
    ],
)
def test_edit_distance_judge(line: str, size: int, format: str, valid: bool) -> None:
    assert (edit_distance.judge(line, size, format) is None) == valid


@pytest.mark.parametrize(
    ("line", "format", "valid"),
    [
        (ED_LOCAL_LINE, "cot", True),
        ("a b | b a <sep> 3", "direct", True),
        (ED_LINE, "cot", False),
    ],
)
def test_edit_distance_judge_local(line: str, format: str, valid: bool) -> None:
    assert (edit_distance.judge_local(line, 2, format) is None) == valid


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


@pytest.mark.parametrize(
    ("line", "size", "order", "format", "reason"),
    [
        ("1 + 2 * 3 = 1 + 6 = 7", 2, "leftmost", "cot", None),
        ("1 + 2 * 3 = 1 + 6 = 7", 2, "any", "cot", None),
        ("1 + 2 * 3 = 7", 2, "any", "direct", None),
        ("1 + 2 * 3 = 7", 2, "any", "cot", "not a single reduction"),
        ("1 + 2 * 3 = 1 + 6 = 7", 2, "any", "direct", "3 parts"),
        ("1 + 2 = 3", 1, "leftmost", "cot", None),
        ("1 + 2 = 3", 1, "leftmost", "direct", None),
        ("1 + 2 = 3", 3, "leftmost", "cot", None),
        ("1 + 2 + 3 = 3 + 3 = 6", 1, "leftmost", "cot", "2 operators"),
        ("4 + 8 + 6 = 4 + 3 = 7", 2, "any", "cot", None),
        ("4 + 8 + 6 = 4 + 3 = 7", 2, "leftmost", "cot", "is expected"),
        ("4 - 8 + 6 = 4 - 3 = 1", 2, "any", "cot", "values"),
        ("4 * 8 / 6 = 4 * 5 = 9", 2, "any", "cot", None),
        ("1 * 2 + 3 * 4 = 1 * 2 + 1 = 2 + 1 = 3", 3, "any", "cot", None),
        ("1 * 2 + 3 * 4 = 1 * 2 + 1 = 2 + 1 = 3", 3, "leftmost", "cot", "is expected"),
        ("1 * 2 + 3 * 4 = 2 + 3 * 4 = 2 + 1 = 3", 3, "leftmost", "cot", None),
        ("0 * 5 + 0 = 0 * 5 = 0", 2, "any", "cot", "not a single reduction"),  # by chance
        ("1 + 2 = 3 = 3", 1, "any", "cot", "not a single reduction"),
        ("1 + 2 = 3 = 3", 1, "leftmost", "cot", "nothing to compute"),
        ("1 + 2 + 3 = 3 + 3", 2, "any", "cot", "not a number"),
        ("1 + 2 + 3 = 6", 2, "any", "cot", "not a single reduction"),
        ("1 + ( 2 - 3 ) = 1 + ( 10 ) = 0", 2, "any", "cot", "lone number"),
        ("1 + 2 = 4", 1, "any", "direct", "values"),
        ("1 + 2 = 4", 1, "any", "cot", "values"),
        ("1 + 2 + 1 = 2 + 2 = 4", 2, "any", "cot", "not a single reduction"),
        ("3 = 3", 1, "any", "direct", "0 operators"),
        ("3", 1, "any", "cot", "1 parts"),
        ("1 + 2 =", 1, "any", "cot", "not a number"),
        ("1 / ( 3 - 3 ) = 1 / 0 = 0", 2, "any", "cot", "zero"),
        ("5 * 9 + 4 + 10 = 5 * 9 + 3 = 1 + 3 = 4", 3, "any", "cot", None),
    ],
)
def test_arithmetic_judge(
    line: str, size: int, order: str, format: str, reason: str | None
) -> None:
    verdict = arithmetic.judge(line, size, order, format)
    assert verdict is None if reason is None else reason in str(verdict)


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
