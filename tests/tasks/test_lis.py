import random
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_samplers import run_lengths, sample
from two_samples import deviation

from common import UserError
from tasks.lis import LIS, _run_lengths
from tasks.random_numbers import start
from tasks.task import Example

SAMPLES = Path(__file__).resolve().parents[1] / "oracles" / "samples"


@given(st.integers(1, 60), st.integers(0, 2**62), st.integers(0, 2**40), st.integers(0, 50))
@settings(max_examples=100, deadline=None)
def test_kernel_writes_what_the_solver_writes(size: int, seed: int, index: int, extra: int) -> None:
    task = LIS(size, number_range=2 * size + 1 + extra)
    drawn = task.decode(task.draw(seed, 1, index, 1), 0)
    assert drawn == task.complete(drawn.prompt)
    assert task.check(drawn.tokens) is None


@given(st.lists(st.integers(10, 20), min_size=1, max_size=9))
@settings(max_examples=50, deadline=None)
def test_solver_against_all_subsequences(numbers: list[int]) -> None:
    expected = [
        max(
            count
            for count in range(1, i + 2)
            for chosen in combinations(numbers[: i + 1], count)
            if chosen[-1] == numbers[i] and all(a < b for a, b in pairwise(chosen))
        )
        for i in range(len(numbers))
    ]
    # equal numbers: a subsequence ending at an earlier equal one is no longer than this one's
    chain, answer = LIS(9).solve([*map(str, numbers), "<sep>"])
    assert chain == [*map(str, expected), "<sep>"]
    assert answer == [str(max(expected))]


def test_hand_worked_table() -> None:
    task = LIS(6)
    sequence = task.complete("56 146 115 222 151 88 <sep>".split())
    assert " ".join(sequence.chain) == "1 2 2 3 3 2 <sep>"
    assert sequence.answer == ["3"]
    assert "chain   1 2 2 3 3 2 <sep>" in (LIS.__doc__ or "")
    assert LIS(3).solve("9 9 9 <sep>".split()) == (["1", "1", "1", "<sep>"], ["1"])


@pytest.mark.parametrize("size", [40, 110])
def test_accepts_the_sequences_of_cot_benchmark(size: int) -> None:
    lines = (SAMPLES / f"lis-{size}.txt").read_text().splitlines()
    assert len(lines) >= 10
    assert [LIS(size).check(line.split()) for line in lines] == [None] * len(lines)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("7 8 9 <sep> 1 2 2 <sep> 3", "chain token 3 is '2', not '3'"),
        ("7 8 9 <sep> 1 2 3 <sep> 2", "the answer is 3, not 2"),
        ("7 8 9 <sep> 1 2 3 <sep>", "no answer"),
        ("7 8 9 <sep> 3", "chain token 1 is missing"),
        ("7 8 9 <sep> 1 2 <sep> 3", "chain token 3"),
        ("7 8 9 <sep> 1 2 3 3 <sep> 3", "chain token 4"),
        ("7 8 <sep> 1 2 <sep> 2", "2 numbers, not 3"),
        ("7 8 3 <sep> 1 2 1 <sep> 2", "a length"),
        ("7 8 250 <sep> 1 2 3 <sep> 3", "'250'"),
        ("7 8 9 <sep> 1 2 3 <sep> 3 3", "the answer is 3, not 3 3"),
        ("7 8 9 1 2 3 3", "no '<sep>'"),
    ],
)
def test_rejects_with_a_reason(line: str, reason: str) -> None:
    said = LIS(3).check(line.split())
    assert said is not None
    assert reason in said


@pytest.mark.parametrize("size", [1, 2, 3, 40, 250])
def test_every_sequence_has_the_longest_length(size: int) -> None:
    task, direct = LIS(size), LIS(size, "direct")
    assert task.max_len == 2 * size + 3
    assert set(task.draw(0, 0, 0, 50).lengths - 1) == {2 * size + 3}
    assert set(direct.draw(0, 0, 0, 50).lengths - 1) == {size + 2} == {direct.max_len}


def features(sequence: Example) -> dict[str, object]:
    numbers = np.array(sequence.prompt[:-1], int)
    return {
        "answer": sequence.answer[0],
        "first number": int(numbers[0]) // 5,
        "last number": int(numbers[-1]) // 5,
        "smallest": int(numbers.min()) // 2,
        "largest": int(numbers.max()) // 2,
        "ascents": int((np.diff(numbers) > 0).sum()),
        "repeats": len(numbers) - len(set(numbers.tolist())),
        "middle length": sequence.chain[10],
    }


def test_kernel_draws_the_plain_sampler_s_distribution() -> None:
    task = LIS(20, number_range=80)
    rng = random.Random(1)
    drawn = task.draw(3, 0, 0, 5000)
    plain = [features(sample(task, rng)) for _ in range(5000)]
    kernel = [features(task.decode(drawn, row)) for row in range(5000)]
    for name in plain[0]:
        score = deviation([f[name] for f in plain], [f[name] for f in kernel])
        assert score < 3.5, (name, score)


@given(st.integers(1, 12), st.integers(0, 10**6))
def test_runs_are_never_negative_and_fit(size: int, seed: int) -> None:
    runs = run_lengths(random.Random(seed), size)
    assert min(runs) >= 0
    assert min(3, size) <= sum(runs) <= size


@pytest.mark.parametrize("size", [2, 3, 8, 40])
def test_kernel_draws_the_plain_run_lengths(size: int) -> None:
    rng, state = random.Random(0), np.empty(1, np.uint64)
    start(state, 0, 0, size, 0)
    plain = [tuple([*run_lengths(rng, size), 0, 0][:3]) for _ in range(20_000)]
    assert deviation(plain, [_run_lengths(state, size) for _ in range(20_000)]) < 3.5


def test_number_range() -> None:
    assert LIS(110).number_range == 250
    assert LIS(175).number_range == 351
    assert LIS(250).vocabulary.dtype == np.uint16
    with pytest.raises(UserError, match="number_range=20 must be at least 21"):
        LIS(10, number_range=20)
    with pytest.raises(UserError, match="number_range=65535 must be at most 65,534"):
        LIS(10, number_range=65535)
    assert len(LIS(10, number_range=65534).vocabulary) == 2**16
    assert LIS(10, number_range=65534).vocabulary.encode(["65533"])[0] == 2**16 - 1


def test_dependencies() -> None:
    task = LIS(2)
    sequence = task.complete("5 6 <sep>".split())
    assert task.dependencies(sequence) == [[0], [0, 1, 3], [], [3, 4]]
    assert task.chain_steps(sequence) == [0, 1, 2, 3]
