from collections import Counter

import pytest

from common import UserError
from tasks.copying import Copying
from tasks.generate import planned_sizes


def test_example_and_formats() -> None:
    sequence = Copying(4).complete("h d d q <sep>".split())
    assert (sequence.chain, sequence.answer) == ([], ["h", "d", "d", "q"])
    assert Copying(4, "cot").complete(sequence.prompt) == sequence


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
