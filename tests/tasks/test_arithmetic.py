import ast
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_samplers import grow

from common import UserError
from tasks.arithmetic import Arithmetic, is_reducible
from tasks.generate import draw_set, planned_sizes
from tasks.task import Example


def leftmost_by_parser(expression: list[str]) -> int:
    """Where Python's own parser finds the leftmost operator with two bare numbers."""
    text = " ".join(expression)
    starts = [
        node.left.col_offset
        for node in ast.walk(ast.parse(text, mode="eval"))
        if isinstance(node, ast.BinOp)
        and isinstance(node.left, ast.Constant)
        and isinstance(node.right, ast.Constant)
    ]
    return len(text[: min(starts)].split())


@given(st.integers(1, 12), st.integers(0, 2**31), st.sampled_from([2, 3, 5, 11, 97, 257]))
@settings(max_examples=60, deadline=None)
def test_growth_kernel_writes_legal_reductions(size: int, seed: int, modulus: int) -> None:
    task = Arithmetic(size, order="growth", modulus=modulus)
    drawn = task.decode(task.draw(seed, 0, 0, 1), 0)
    assert task.check(drawn.tokens) is None
    assert sum(token in "+-*/" for token in drawn.prompt) == size


@given(st.integers(1, 10), st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_leftmost_pair_is_the_parser_s(size: int, seed: int) -> None:
    expression = grow(Arithmetic(size), random.Random(seed), size)[-1]
    found = next(i for i in range(len(expression)) if is_reducible(expression, i))
    assert found == leftmost_by_parser(expression)


def test_hand_worked_chain() -> None:
    task = Arithmetic(4)
    sequence = task.complete("3 / 4 / ( 10 - 1 * 2 ) =".split())
    chain = "9 / ( 10 - 1 * 2 ) = 9 / ( 10 - 2 ) = 9 / 8 ="
    assert (" ".join(sequence.chain), sequence.answer) == (chain, ["8"])  # 8 * 8 = 64 = 9 mod 11
    assert task.chain_steps(sequence) == [0] * 10 + [1] * 8 + [2] * 4 + [3]


def test_directly_given_answer() -> None:
    task = Arithmetic(2, "direct")
    assert task.complete("1 - 2 * 3 =".split()) == Example("1 - 2 * 3 =".split(), [], ["6"])
    assert task.max_len == 9
    assert task.check("1 - 2 * 3 = 6".split()) is None
    assert task.check("1 - 2 * 3 = 1 - 6 = 6".split()) is not None


def test_orders_differ_in_what_they_accept() -> None:
    line = "1 * 2 + 3 * 4 = 1 * 2 + 1 = 2 + 1 = 3".split()
    assert Arithmetic(3, order="growth").check(line) is None
    assert "chain token 1" in (Arithmetic(3).check(line) or "")


def test_longest_sequence_is_reached_and_never_exceeded() -> None:
    for size in range(1, 5):
        task = Arithmetic(size)
        assert task.max_len == 2 * size**2 + 2 * size + 1
        longest = task.draw(0, 0, 0, 20_000).lengths.max() - 1
        assert longest == task.max_len
    nested = "1 / ( 1 / ( 1 / ( 1 / ( 1 / 1 ) ) ) ) =".split()
    task = Arithmetic(5)
    assert len(task.complete(nested).tokens) == task.max_len
    assert Arithmetic(16).draw(0, 0, 0, 5000).lengths.max() - 1 <= 545


def test_training_mixture_is_in_proportion_to_the_operators() -> None:
    sizes = Counter(planned_sizes(Arithmetic(4), "train", 1000, seed=0).tolist())
    assert sizes == {1: 100, 2: 200, 3: 300, 4: 400}
    assert set(planned_sizes(Arithmetic(4), "test", 10, seed=0).tolist()) == {4}


def test_missing_small_expressions_are_filled_up_with_the_largest() -> None:
    """473 one-operator expressions exist: 121 sums, differences and products, 110 quotients."""
    task = Arithmetic(3)
    drawn = draw_set(task, "train", 6000)
    operators = Counter(
        sum(token in "+-*/" for token in task.decode(drawn, row).prompt) for row in range(6000)
    )
    assert operators == {1: 473, 2: 2000, 3: 3527}


@pytest.mark.parametrize(
    "bad",
    [
        {"size": 0},
        {"size": 2.5},
        {"size": True},
        {"order": "right"},
        {"modulus": 9},
        {"format": "x"},
    ],
)
def test_bad_parameters(bad: dict) -> None:
    with pytest.raises(UserError, match=next(iter(bad))):
        Arithmetic(**{"size": 3, **bad})


def test_dependencies_of_a_short_chain() -> None:
    task = Arithmetic(2)
    sequence = task.parse("2 * ( 3 + 4 ) = 2 * 7 = 3".split())
    # positions:             0 1 2 3 4 5 6 7 8 9 10 11 12
    assert task.dependencies(sequence) == [[0], [1], [2, 3, 4, 5, 6], [], [8, 9, 10]]
