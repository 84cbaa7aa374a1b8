"""Compiled kernels and plain samplers have the same distribution (two-sample chi-square test)."""

import random

import numpy as np
import pytest
from plain_samplers import sample
from two_samples import deviation

from tasks.arithmetic import Arithmetic
from tasks.copying import Copying
from tasks.data import DataConfig, build
from tasks.ed import EditDistance, strings
from tasks.lis import LIS
from tasks.mqar import MQAR, split
from tasks.task import Task


def of_arithmetic(sequence):
    prompt = sequence.prompt
    return {
        "prompt length": len(prompt), "sequence length": len(sequence.tokens),
        "first token": prompt[0], "last token": prompt[-2], "answer": sequence.answer[0],
    } | {token: prompt.count(token) for token in "+-*/0"}  # fmt: skip


def of_two_strings(sequence):
    one, two = strings(sequence.prompt)
    return {
        "lengths": (len(one), len(two)), "answer": sequence.answer[0],
        "first letter": one[0], "last letter": two[-1], "letters used": len(set(one + two)),
        "same place": sum(a == b for a, b in zip(one, two, strict=False)),
        "same letters": len(set(one) & set(two)),
    }  # fmt: skip


def of_numbers(sequence):
    numbers = np.array(sequence.prompt[:-1], int)
    return {
        "first number": int(numbers[0]) // 5, "last number": int(numbers[-1]) // 5,
        "smallest": int(numbers.min()) // 2, "largest": int(numbers.max()) // 2,
        "ascents": int((np.diff(numbers) > 0).sum()), "answer": sequence.answer[0],
        "repeats": len(numbers) - len(set(numbers.tolist())),
        "middle length": sequence.chain[len(numbers) // 2],
    }  # fmt: skip


def of_pairs(sequence):
    pairs, queries = split(sequence.prompt)
    keys, values = zip(*pairs, strict=True)
    return {
        "first key": int(keys[0]), "last key": int(keys[-1]), "first value": int(values[0]),
        "ascents": int((np.diff([int(key) for key in keys]) > 0).sum()),
        "place of the first query": keys.index(queries[0]),
        "place of the last query": keys.index(queries[-1]),
        "queries in order": queries == sorted(queries, key=keys.index),
        "answer": sequence.answer[0],
    }  # fmt: skip


def of_letters(sequence):
    return {place: tuple(sequence.answer[place : place + 4]) for place in (0, 3, 5)}


DRAWN = [
    *((Arithmetic(5, order=order), of_arithmetic) for order in ("leftmost", "growth")),
    *((EditDistance(size, "direct"), of_two_strings) for size in (1, 2, 7, 20)),
    *((LIS(size, number_range=80), of_numbers) for size in (2, 8, 20)),
    (MQAR(8, queries=3, vocab_size=40), of_pairs),
    (Copying(9, alphabet_size=3), of_letters),
]


@pytest.mark.parametrize(("task", "features"), DRAWN, ids=lambda x: str(getattr(x, "size", "")))
def test_kernel_matches_the_plain_sampler(task: Task, features) -> None:
    rng, drawn = random.Random(1), task.draw(3, 0, 0, 5000)
    plain = [features(sample(task, rng)) for _ in range(5000)]
    kernel = [features(task.decode(drawn, row)) for row in range(5000)]
    for name in plain[0]:
        score = deviation([f[name] for f in plain], [f[name] for f in kernel])
        assert score < 3.5, (name, score)


MANY = [(task, features) for task, features in DRAWN if task.size >= 5 and task.name != "copy"]


@pytest.mark.parametrize(("task", "features"), MANY, ids=lambda x: str(getattr(x, "size", "")))
def test_stored_sets_match_the_plain_sampler_in_both_splits(task: Task, features) -> None:
    """For tasks in which few prompts repeat; training sequences of the largest size only."""
    rng, counts = random.Random(2), DataConfig(train=6000, validation=10, test=2000)
    sets = build(task, counts, progress=False)
    plain = [features(sample(task, rng)) for _ in range(4000)]
    for stored in ("train", "test"):
        own = [task.decode(sets[stored], row) for row in range(len(sets[stored]))]
        if task.name == "arithmetic":
            own = [one for one in own if sum(map(one.prompt.count, "+-*/")) == task.size]
        assert len(own) >= 1900
        found = list(map(features, own))
        for name in plain[0]:
            score = deviation([f[name] for f in plain], [f[name] for f in found])
            assert score < 3.5, (stored, name, score)


def test_every_number_of_edits_terminates() -> None:
    """Even if edited copies are hardly ever admissible, as the next pair may be independent."""
    assert len(EditDistance(300, "direct", alphabet_size=3).draw(0, 0, 0, 500)) == 500
