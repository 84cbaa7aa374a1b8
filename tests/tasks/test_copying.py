import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_samplers import sample

from common import UserError
from tasks.copying import Copying
from tasks.generate import planned_sizes
from tests.oracles import copying


@given(st.integers(1, 60), st.integers(1, 26), st.integers(0, 2**62), st.integers(0, 2**40))
@settings(max_examples=60, deadline=None)
def test_kernel_writes_what_the_solver_writes(size, letters, seed, index) -> None:
    task = Copying(size, alphabet_size=letters)
    for length in {1, size}:
        drawn = task.decode(task.draw(seed, 1, index, 1, size=length), 0)
        assert drawn == task.complete(drawn.prompt)
        assert task.check(drawn.tokens) is None
        assert copying.judge(" ".join(drawn.tokens), size, alphabet_size=letters) is None
        assert len(drawn.prompt) == length + 1 and len(drawn.tokens) <= task.max_len


def test_example_and_formats() -> None:
    sequence = Copying(4).complete("h d d q <sep>".split())
    assert (sequence.chain, sequence.answer) == ([], ["h", "d", "d", "q"])
    for line in ("prompt  h d d q <sep>", "answer  h d d q"):
        assert line in (Copying.__doc__ or "")
    assert Copying(4, "cot").complete(sequence.prompt) == sequence


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("a b <sep> a b", None),
        ("a <sep> a", None),
        ("a b <sep> a c", "the answer is a b, not a c"),
        ("a b <sep> a", "the answer is a b, not a"),
        ("a b c d <sep> a b c d", "4 letters, not 1 to 3"),
        ("<sep> a", "0 letters"),
        ("a b <sep>", "no answer"),
        ("a b a b", "no '<sep>'"),
        ("a b <sep> a b <sep> a b", "second marker"),
        ("A b <sep> A b", "'A'"),
    ],
)
def test_judged_with_a_reason_as_by_the_oracle(line: str, reason: str | None) -> None:
    said = Copying(3).check(line.split())
    assert (said is None) == (copying.judge(line, 3) is None) == (reason is None)
    assert reason is None or reason in str(said)


def test_letters_are_uniform_and_independent() -> None:
    """Pairs of neighbours, in the kernel and in the plain sampler: five standard deviations."""
    task = Copying(9, alphabet_size=3)
    drawn, rng = task.draw(5, 0, 0, 3000), random.Random(0)
    for examples in (
        [task.decode(drawn, row) for row in range(3000)],
        [sample(task, rng) for _ in range(3000)],
    ):
        pairs = Counter(
            pair for e in examples for pair in zip(e.answer, e.answer[1:], strict=False)
        )
        assert len(pairs) == 9
        expected = 3000 * 8 / 9
        assert all(abs(n - expected) < 5 * expected**0.5 for n in pairs.values())


def test_training_has_every_length_and_tests_the_longest() -> None:
    sizes = Counter(planned_sizes(Copying(5), "train", 1000, 0).tolist())
    assert sizes == dict.fromkeys(range(1, 6), 200)
    assert set(planned_sizes(Copying(5), "test", 10, 0).tolist()) == {5}


def test_dependencies_and_bad_sizes() -> None:
    task = Copying(3, capacity=9)
    assert task.dependencies(task.complete("c a b <sep>".split())) == [[0], [1], [2]]
    assert (task.max_len, task.room.max_len) == (7, 19)
    with pytest.raises(UserError, match="alphabet_size=27 must be at most 26"):
        Copying(3, alphabet_size=27)
