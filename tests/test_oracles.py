"""Oracles compared with examples worked by hand and lines of CoT_benchmark by Feng et al."""

from pathlib import Path

import pytest
from oracles import arithmetic, judge
from oracles.lists import lis_lengths
from oracles.mutations import mutants

SAMPLES = sorted((Path(__file__).parent / "oracles" / "samples").glob("*.txt"))


def test_lis_lengths_worked_by_hand() -> None:
    assert lis_lengths([5, 5, 5]) == [1, 1, 1]
    assert lis_lengths([3, 1, 4, 1, 5, 9, 2, 6]) == [1, 1, 2, 1, 3, 4, 2, 4]
    assert lis_lengths([0, 8, 4, 12, 2, 10, 6, 14]) == [1, 2, 2, 3, 2, 3, 3, 4]


LEFTMOST = {
    "1 + 2": "3", "1 + 2 + 3": "3 + 3", "1 + 2 * 3": "1 + 6", "1 * 2 + 3 * 4": "2 + 3 * 4",
    "1 - ( 2 - 3 )": "1 - 10", "1 - ( 2 - 3 - 4 )": "1 - ( 10 - 4 )",
    "( 1 + 2 ) * ( 3 + 4 )": "3 * ( 3 + 4 )",
    "6 + 2 * ( 1 + 1 ) + 3 * 3": "6 + 2 * 2 + 3 * 3",
    "6 - ( 2 + 3 * 4 ) + 5 * 6": "6 - ( 2 + 1 ) + 5 * 6",
    "5 + 8 / ( 4 / 2 * 2 )": "5 + 8 / ( 2 * 2 )",
}  # fmt: skip
REDUCTIONS = {
    "4 - 3 + ( 1 + 2 ) * 5 / 0": ["1 + ( 1 + 2 ) * 5 / 0", "4 - 3 + 3 * 5 / 0"],
    "1 + 2 + 3": ["3 + 3", "1 + 5"], "1 - 2 - 3": ["10 - 3"], "2 / 3 * 4": ["8 * 4"],
    "2 * 3 / 4": ["6 / 4", "2 * 9"], "( 5 - 2 + 3 ) * 4 - 1": ["( 3 + 3 ) * 4 - 1"],
}  # fmt: skip


def test_arithmetic_reductions() -> None:
    for expression, reduced in LEFTMOST.items():
        assert arithmetic.leftmost_reduction(expression) == reduced
        assert reduced in arithmetic.reductions(expression)
    for expression, every in REDUCTIONS.items():
        assert arithmetic.reductions(expression) == every


def test_needless_brackets() -> None:
    needed = ["1 + 2", "1 - ( 2 + 3 )", "( 1 - 2 ) * 3", "2 / ( 3 * 4 )"]
    needless = ["1 + ( 2 + 3 )", "( 1 - 2 ) + 3", "2 * ( 3 / 4 )", "2 - ( 3 * 4 )"]
    assert not any(map(arithmetic.needless_brackets, needed))
    assert all(map(arithmetic.needless_brackets, [*needless, "2 - ( ( 3 + 4 ) )"]))


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_oracle_accepts_cot_benchmark_lines_and_rejects_mutants(path: Path) -> None:
    """The prompt determines the rest of a line, so every change after it is an error."""
    task, size = path.stem.split("-")
    lines, marker = path.read_text().splitlines(), "=" if task == "arithmetic" else "<sep>"
    assert [judge(line, task, size=int(size)) for line in lines] == [None] * 10
    for mutant in mutants(lines, 300, seed=1, after_prompt=marker):
        assert judge(mutant, task, size=int(size)) is not None, mutant
    if task == "arithmetic":
        assert not any(arithmetic.needless_brackets(line.split(" = ")[0]) for line in lines)
