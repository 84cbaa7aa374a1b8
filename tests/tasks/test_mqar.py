import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_samplers import sample
from two_samples import deviation

from common import UserError
from tasks.mqar import MQAR, split
from tasks.task import Example
from tests.oracles import mqar


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 2**62), st.integers(0, 2**40))
@settings(max_examples=60, deadline=None)
def test_kernel_writes_what_the_solver_writes(size, queries, seed, index) -> None:
    for format in ("cot", "direct", "tagged"):
        queries = min(queries, size)
        task = MQAR(size, format, queries=queries)
        drawn = task.decode(task.draw(seed, 1, index, 1), 0)
        assert drawn == task.complete(drawn.prompt)
        assert task.check(drawn.tokens) is None
        assert mqar.judge(" ".join(drawn.tokens), size, format, queries) is None
        assert len(drawn.tokens) == task.max_len + task.labelled * (2 * size + 1 + queries)
        encoded, again = task.draw(seed, 1, index, 1), task.encode([drawn])
        for name in ("tokens", "lengths", "prompt_lengths", "labels"):
            assert np.array_equal(getattr(encoded, name), getattr(again, name))


def test_hand_worked_example() -> None:
    task = MQAR(3, queries=2)
    sequence = task.complete("3 70 41 66 9 101 | 9 3 <sep>".split())
    assert " ".join(sequence.chain) == "9 101 3 70 <sep>"
    assert sequence.answer == ["70"]
    for line in ("3 70 41 66 9 101 | 9 3 <sep>", "9 101 3 70 <sep>"):
        assert line in (MQAR.__doc__ or "")
    direct = MQAR(3, "direct", queries=2).complete(sequence.prompt)
    assert direct == Example(sequence.prompt, [], ["70"])
    tagged = MQAR(3, "tagged", queries=2)
    labels = "| | | | | | | 101 70".split()
    assert tagged.complete(sequence.prompt) == Example(sequence.prompt, [], labels)
    encoded = tagged.encode([tagged.complete(sequence.prompt)])
    read = "<sep> 3 70 41 66 9 101 | 9 3 <eos>".split()
    assert tagged.vocabulary.decode(encoded.tokens[0]) == read
    assert tagged.vocabulary.decode(encoded.labels[0, 2:]) == labels
    assert tagged.max_len == len(read) - 1


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1 65 2 66 | 2 1 <sep> 2 66 1 65 <sep> 65", None),
        ("1 65 2 66 | 2 1 <sep> 2 65 1 65 <sep> 65", "chain token 2 is '65', not '66'"),
        ("1 65 2 66 | 2 1 <sep> 1 65 2 66 <sep> 66", "chain token 1"),
        ("1 65 2 66 | 2 1 <sep> 2 66 1 65 <sep> 66", "the answer is 65, not 66"),
        ("1 65 1 66 | 1 1 <sep> 1 66 1 66 <sep> 66", "a key occurs twice"),
        ("1 65 2 65 | 2 1 <sep> 2 65 1 65 <sep> 65", "a value occurs twice"),
        ("1 65 2 66 | 2 2 <sep> 2 66 2 66 <sep> 66", "a query occurs twice"),
        ("1 65 2 66 | 2 3 <sep> 2 66 3 66 <sep> 66", "3 is asked for and has no value"),
        ("1 65 2 64 | 2 1 <sep> 2 64 1 65 <sep> 65", "64 is no value"),
        ("1 65 66 2 | 2 1 <sep> 2 66 1 65 <sep> 65", "66 is no key"),
        ("1 65 2 66 | 2 66 <sep> 2 66 1 65 <sep> 65", "66 is no query"),
        ("1 65 | 2 66 2 1 <sep> 2 66 1 65 <sep> 65", "the bar does not follow 2 pairs"),
        ("1 65 2 66 | 2 <sep> 2 66 <sep> 66", "not 2 pairs, a bar and 2 queries"),
        ("1 65 2 66 2 1 <sep> 2 66 1 65 <sep> 65", "not 2 pairs, a bar and 2 queries"),
    ],
)
def test_judged_with_a_reason_as_by_the_oracle(line: str, reason: str | None) -> None:
    said = MQAR(2).check(line.split())
    assert (said is None) == (mqar.judge(line, 2) is None) == (reason is None)
    assert reason is None or reason in str(said)


def features(sequence: Example) -> dict[str, object]:
    pairs, queries = split(sequence.prompt)
    keys, values = zip(*pairs, strict=True)
    return {
        "first key": int(keys[0]),
        "last key": int(keys[-1]),
        "first value": int(values[0]),
        "ascents": int((np.diff([int(key) for key in keys]) > 0).sum()),
        "place of the first query": keys.index(queries[0]),
        "place of the last query": keys.index(queries[-1]),
        "queries in order": queries == sorted(queries, key=keys.index),
    }


def test_kernel_draws_the_plain_sampler_s_distribution() -> None:
    task = MQAR(8, queries=3, vocab_size=40)
    rng, drawn = random.Random(1), task.draw(3, 0, 0, 5000)
    plain = [features(sample(task, rng)) for _ in range(5000)]
    kernel = [features(task.decode(drawn, row)) for row in range(5000)]
    for name in plain[0]:
        score = deviation([f[name] for f in plain], [f[name] for f in kernel])
        assert score < 3.5, (name, score)


def test_every_key_is_asked_once_and_every_value_equally_likely() -> None:
    """Chance is 1 / values: 64 of them, 20,000 draws, five standard deviations."""
    task = MQAR(4)
    drawn = task.draw(0, 0, 0, 20_000)
    answers = Counter()
    for row in range(len(drawn)):
        example = task.decode(drawn, row)
        pairs, queries = split(example.prompt)
        assert sorted(queries) == sorted(key for key, _ in pairs)
        answers[example.answer[0]] += 1
    assert {int(token) for token in answers} == set(task.values)
    assert max(answers.values()) < 20_000 / 64 + 5 * (20_000 / 64) ** 0.5


def test_sizes_of_the_vocabulary() -> None:
    assert (MQAR(8).vocab_size, MQAR(64).vocab_size) == (128, 256)
    assert MQAR(8, capacity=64).vocab_size == 256
    assert (list(MQAR(2, vocab_size=5).keys), list(MQAR(2, vocab_size=5).values)) == (
        [1, 2], [3, 4, 5],
    )  # fmt: skip
    with pytest.raises(UserError, match="vocab_size=15 must be at least 16"):
        MQAR(8, vocab_size=15)
    with pytest.raises(UserError, match="queries=9 must be at most 8"):
        MQAR(8, queries=9)
    assert len(MQAR(4, vocab_size=8192).vocabulary) == 8192 + 4


def test_dependencies_and_steps() -> None:
    task = MQAR(2)
    sequence = task.complete("1 65 2 66 | 2 1 <sep>".split())
    assert sequence.tokens[8:] == ["2", "66", "1", "65", "<sep>", "65"]
    assert task.dependencies(sequence) == [[5], [2, 3, 8], [6], [0, 1, 10], [], [11]]
    assert task.chain_steps(sequence) == [0, 0, 1, 1, 2, 2]
    direct = MQAR(2, "direct")
    assert direct.dependencies(direct.complete(sequence.prompt)) == [[0, 1, 6]]
    tagged = MQAR(2, "tagged")
    example = tagged.complete(sequence.prompt)
    assert tagged.dependencies(example) == [[]] * 5 + [[2, 3, 5], [0, 1, 6]]
    assert tagged.chain_steps(example) == list(range(7))
