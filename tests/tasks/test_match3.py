"""Match3: comparison with the oracle, and the distribution of its prompts."""

import re
from collections import Counter
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import drawn_lines
from oracles import match3 as oracle
from oracles.mutations import mutants
from processes import ROOT

from experiments.grid import cell_of
from tasks.match3 import Match3


def split(line):
    """The numbers, the query, and whether there is a match."""
    words = line.split()
    return [int(word) for word in words[:-3]], int(words[-2]), words[-1] == "yes"


def test_by_hand():
    task = Match3(5)
    assert task.modulus == 21 and task.max_len == 8
    for query, answer in (("5", "no"), ("20", "yes")):  # 20 + 20 + 2
        assert task.complete(f"11 15 20 2 8 <sep> {query}".split()).answer == [answer]
    assert task.check("11 15 20 <sep> 4 <sep> 4 no".split())


@settings(max_examples=12)
@given(st.integers(2, 9), st.integers(0, 8), st.integers(0, 99))
def test_oracle_accepts_every_line_and_agrees_on_mutants(size, more, seed):
    task = Match3(size, modulus=2 * (size + more) + 1)
    drawn = drawn_lines(task, 12, seed)
    for line in drawn:
        assert oracle.judge(line, size, task.modulus) is None and task.check(line.split()) is None
    for line in mutants(drawn, 12, seed):
        verdict, ours = oracle.judge(line, size, task.modulus), task.check(line.split())
        assert (verdict is None) == (ours is None), (line, verdict, ours)


@pytest.mark.parametrize("modulus", [17, 33])
def test_one_match_or_none_among_distinct_numbers(modulus):
    for line in drawn_lines(Match3(8, modulus=modulus), 400, 0):
        numbers, query, answer = split(line)
        matches = sum((x + y + query) % modulus == 0 for x, y in combinations(numbers, 2))
        assert matches == answer and len(set(numbers)) == 8
        assert all((2 * x + query) % modulus for x in numbers)


def test_simple_features_do_not_reveal_the_answer():
    """Yes and no are equally frequent, overall and given the query and any other number.

    2,000 lines; each of the 17 x 16 combinations of q and x occurs about 59 times. The tolerance
    is 4.5 standard deviations of a share of one half.
    """
    modulus, count = 17, 2000
    found = [split(line) for line in drawn_lines(Match3(8, modulus=modulus), count, 0)]
    assert abs(np.mean([answer for *_, answer in found]) - 0.5) < 4.5 * (0.25 / count) ** 0.5
    counts, matched = Counter(), Counter()
    for numbers, query, answer in found:
        counts.update((query, x) for x in numbers)
        matched.update((query, x) for x in numbers if answer)
    assert len(counts) == modulus * (modulus - 1)
    for key, seen in counts.items():
        assert abs(matched[key] / seen - 0.5) < 4.5 * (0.25 / seen) ** 0.5
    for feature in (np.ptp, lambda numbers: sum(numbers) % modulus):
        with_match, without = (
            np.mean([feature(numbers) for numbers, _, answer in found if answer == kind])
            for kind in (True, False)
        )
        assert abs(with_match - without) < 1  # SD of a sum modulo 17 is 4.9: 4.5 times 0.22


def documented(row, column):
    """An entry in the table of guesses in docs/tensor.md."""
    page = (ROOT / "docs" / "tensor.md").read_text()
    names, found = (
        re.search(rf"^\| {start} \| (.*) \|$", page, re.MULTILINE)[1].split(" | ")
        for start in ("n, p", row)
    )
    return int(found[names.index(column)])


@pytest.mark.parametrize(
    ("size", "modulus", "of_sum", "of_both"), [(3, 13, 0.654, 0.977), (4, 17, 0.581, 0.906)]
)
def test_best_guesses_from_sums_match_the_documentation(size, modulus, of_sum, of_both):
    """Exact accuracy of the best guess from q and the sum of the numbers, or also the sum of their
    squares."""

    def signed(count):
        pairs = np.array(list(combinations(range(1, modulus // 2 + 1), count)))
        signs = np.array(list(product((1, -1), repeat=count)))
        return (pairs[:, None] * signs).reshape(-1, count)  # relative to -q / 2

    fewer = signed(size - 1)
    match = np.concatenate([np.column_stack([fewer, -fewer[:, i]]) for i in range(size - 1)])
    rows = (((1,), "sum", of_sum), ((1, 2), "sum and sum of squares", of_both))
    for powers, row, expected in rows:
        ranges = [size * modulus**power for power in powers]
        right = 0.0
        for own in range(modulus):
            shares = []
            for offsets in (signed(size), match):
                sums = [((own + offsets) % modulus) ** power for power in powers]
                codes = np.ravel_multi_index([x.sum(1) for x in sums], ranges)
                shares.append(np.bincount(codes, minlength=np.prod(ranges)) / len(codes))
            right += np.maximum(*shares).sum() / 2 / modulus
        assert right == pytest.approx(expected, abs=5e-4)
        assert round(100 * right) == documented(row, f"{size}, {modulus}")


def test_the_shipped_modulus_is_the_documented_one():
    shipped = cell_of(["task=match3"]).config.task
    assert (shipped["size"], shipped["modulus"]) == (8, 65) and documented("sum", "8, 65")
