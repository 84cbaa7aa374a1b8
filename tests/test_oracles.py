"""Oracles compared with examples worked by hand and lines of CoT_benchmark by Feng et al."""

from pathlib import Path

import pytest
from oracles import arithmetic, judge
from oracles.mutations import mutants

SAMPLES = sorted((Path(__file__).parent / "oracles" / "samples").glob("*.txt"))


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
