"""`python -m tasks sample` and `check` compared with independent oracles."""

import contextlib
import io
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from oracles import JUDGES, arithmetic, judge
from oracles.mutations import mutants

from tasks.__main__ import main


@dataclass(frozen=True)
class Case:
    """One call of `python -m tasks sample`."""

    task: str
    size: int
    words: str = ""  # settings for `python -m tasks`
    split: str = "train"
    seed: int = 1
    count: int = 40

    def __str__(self) -> str:
        return " ".join(map(str, filter(None, [self.task, self.size, self.words, self.split])))

    @property
    def options(self) -> list[str]:
        return [self.task, "--size", str(self.size), *self.words.split()]

    def judge(self, line: str) -> str | None:
        own: dict[str, Any] = dict(word.lstrip("-").split("=") for word in self.words.split())
        for key in own.keys() & {"capacity", "number_range"}:
            own[key] = int(own[key])
        return judge(line, self.task, size=self.size, **own)


def run(*arguments: str) -> tuple[int, str, str]:
    stdout, stderr = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        status = main(arguments)
    return status, stdout.getvalue(), stderr.getvalue()


def sample(case: Case) -> list[str]:
    words = ["--count", str(case.count), "--seed", str(case.seed), "--split", case.split]
    status, lines, error = run("sample", *case.options, *words)
    assert status == 0, error
    return lines.splitlines()


@pytest.mark.parametrize("task", JUDGES)
def test_seed_determines_lines(task: str) -> None:
    first, other = sample(Case(task, 6)), sample(Case(task, 6, seed=2))
    assert first == sample(Case(task, 6))
    both = set(first) & set(other)
    assert not {line for line in both if len(line.split()) > 5}  # short copies can repeat
    test = sample(Case(task, 6, split="test"))
    assert not set(first) & set(test)


def refused_by_check(case: Case, lines: list[str], folder: Path) -> set[int]:
    """Line numbers, from 1, that `check` rejects."""
    path = folder / "lines.txt"
    path.write_text("".join(f"{line}\n" for line in lines))
    status, printed, error = run("check", *case.options, str(path))
    named = {int(number) for number in re.findall(r"\bline (\d+): \w", printed)}
    total = f"{len(lines)} lines, {len(lines) - len(named)} valid, {len(named)} invalid"
    assert printed.splitlines()[-1:] == [total], printed + error
    assert status == (1 if named else 0)
    return named


def refused_by_oracle(case: Case, lines: list[str]) -> set[int]:
    return {number for number, line in enumerate(lines, 1) if case.judge(line) is not None}


CHECKED = [
    Case("arithmetic", 6, "order=leftmost", count=100),
    Case("arithmetic", 6, "order=growth", count=100),
    Case("arithmetic", 6, "--format=direct", count=100), Case("arithmetic", 16, "order=leftmost"),
    Case("arithmetic", 16, "order=growth"), Case("lis", 10, count=100),
    Case("lis", 10, "format=direct", count=100), Case("lis", 250, count=10),
    Case("lis", 10, "number_range=21", count=100), Case("lis", 10, "capacity=130", count=100),
    Case("ed", 3, count=100),
    Case("ed", 4, "capacity=20", count=100), Case("ed", 12, "format=direct", count=100),
    Case("ed", 20, count=20), Case("ed_local", 3, count=100),
    Case("ed_local", 6, "format=direct", count=100), Case("ed_local", 20, count=20),
    Case("mqar", 5, count=100), Case("mqar", 4, "capacity=40", count=100),
    Case("mqar", 8, "format=direct", count=100), Case("copy", 10, "format=cot", count=100),
    Case("lis", 110, split="test", count=20), Case("ed", 16, split="test", count=20),
    Case("mqar", 64, split="test", count=20), Case("copy", 100, split="test"),
]  # fmt: skip


@pytest.mark.parametrize("case", CHECKED, ids=str)
def test_samples_are_valid_and_check_agrees_with_the_oracle(case: Case, tmp_path: Path) -> None:
    """On samples and 100 mutants; for arithmetic, with both orders."""
    lines = sample(case)
    prompts = {re.split(" (?:=|<sep>) ", line)[0] for line in lines}
    assert len(prompts) == case.count and not refused_by_oracle(case, lines)
    if case.task == "arithmetic":
        assert not any(map(arithmetic.needless_brackets, prompts))
    lines += mutants(lines, 100, seed=3)
    for order in [" order=leftmost", " order=growth"] if case.task == "arithmetic" else [""]:
        asked = replace(case, words=case.words + order)
        differing = refused_by_oracle(asked, lines) ^ refused_by_check(asked, lines, tmp_path)
        assert not differing, [lines[number - 1] for number in differing]


# Valid lines, invalid lines, and lines that are valid only with order=growth.
EDGES = {
    Case("arithmetic", 3, "order=growth"): """\
growth  4 + 8 + 6 = 4 + 3 = 7
growth  4 * 8 / 6 = 4 * 5 = 9
invalid 0 * 5 + 0 = 0 * 5 = 0
valid   7 - 0 - 0 = 7 - 0 = 7
invalid 1 / 0 * 0 = 1 * 0 = 0
invalid 1 / ( 6 - 6 ) = 1 / 0 = 0
growth  2 * 3 + 0 * 4 = 2 * 3 + 0 = 6 + 0 = 6
invalid ( 3 ) + 1 = 3 + 1 = 4
valid   ( 1 + 2 ) = 3
invalid 1 + ( 2 + 3 ) = 1 + ( 5 ) = 6
valid   1 - ( 2 - 3 ) = 1 - 10 = 2
invalid - 3 + 4 = 1
invalid 2 ( 3 ) = 6
invalid 1+2 = 3
invalid 1 + 12 = 2
invalid 1 + 2 = 3 <eos>
invalid 1 + 2 + 3 + 4 + 5 = 3 + 3 + 4 + 5 = 6 + 4 + 5 = 10 + 5 = 4
invalid 1 + 2 + 3 = 6
growth  1 * 2 + 3 * 4 = 1 * 2 + 1 = 2 + 1 = 3
valid   1 * 2 + 3 * 4 = 2 + 3 * 4 = 2 + 1 = 3
""",
    Case("lis", 3): """\
valid   7 8 9 <sep> 1 2 3 <sep> 3
invalid 7 8 9 <sep> 3
invalid 7 8 3 <sep> 1 2 1 <sep> 2
invalid 7 8 250 <sep> 1 2 3 <sep> 3
valid   9 9 9 <sep> 1 1 1 <sep> 1
invalid 07 8 9 <sep> 1 2 3 <sep> 3
""",
    Case("ed", 3): """\
valid   a | a b c <sep> 0 2 4 , <sep> 4
invalid a b c | a <sep> 0 , 2 , 4 , <sep> 4
valid   r x | c r o <sep> 3 1 3 , 4 3 4 , <sep> 4
invalid r x | c r o <sep> 4
invalid c r o | r x <sep> 4
invalid r x s | c r s o x y <sep> 4
invalid r x s | r x s <sep> 4
invalid r 3 s | r x s <sep> 4
""",
    Case("ed_local", 3): """\
valid   r x | c r o <sep> 3 1 3 , x | c r o <sep> 4 3 4 , <sep> 4
valid   a b c | x y z <sep> 3 4 5 , b c | x y z <sep> 4 6 7 , c | x y z <sep> 5 7 9 , <sep> 9
invalid r x | c r o <sep> 3 1 3 , r | c r o <sep> 4 3 4 , <sep> 4
invalid r x | c r o <sep> 3 1 3 , 4 3 4 , <sep> 4
""",
    Case("mqar", 2): """\
valid   1 65 2 66 | 2 1 <sep> 2 66 1 65 <sep> 65
invalid 1 65 2 66 | 2 1 <sep> 1 65 2 66 <sep> 66
invalid 1 65 1 66 | 1 1 <sep> 1 66 1 66 <sep> 66
invalid 1 65 2 65 | 2 1 <sep> 2 65 1 65 <sep> 65
invalid 1 65 2 66 | 2 2 <sep> 2 66 2 66 <sep> 66
invalid 1 65 66 2 | 2 1 <sep> 2 66 1 65 <sep> 65
invalid 1 65 2 66 | 2 66 <sep> 2 66 1 65 <sep> 65
""",
    Case("copy", 3): """\
valid   a b <sep> a b
valid   a <sep> a
invalid a b <sep> a c
invalid a b c d <sep> a b c d
invalid A b <sep> A b
""",
}
EDGES[Case("arithmetic", 3, "order=leftmost")] = EDGES[Case("arithmetic", 3, "order=growth")]


@pytest.mark.parametrize("case", EDGES, ids=str)
def test_check_and_oracle_agree_on_edge_cases(case: Case, tmp_path: Path) -> None:
    pairs = [line.split(maxsplit=1) for line in EDGES[case].splitlines()]
    verdicts, lines = zip(*pairs, strict=True)
    valid = ("valid", "growth") if case.words == "order=growth" else ("valid",)
    expected = {number for number, verdict in enumerate(verdicts, 1) if verdict not in valid}
    assert refused_by_oracle(case, list(lines)) == expected
    assert refused_by_check(case, list(lines), tmp_path) == expected
