"""Chains, labels, vocabularies and token dependencies, worked out by hand."""

import re

import numpy as np
import pytest

from tasks.arithmetic import Arithmetic
from tasks.closure import Closure
from tasks.copying import Copying
from tasks.ed import EditDistance, distances
from tasks.ed_local import EditDistanceLocal
from tasks.lis import LIS
from tasks.locality import locality
from tasks.match3 import Match3
from tasks.mqar import MQAR
from tasks.word import Word

EXAMPLES = [
    Arithmetic(4), LIS(6), EditDistance(3), EditDistanceLocal(3), Copying(4), Match3(5),
    MQAR(3, queries=2), Word(5, monoid="S3", letters="all"),
    Closure(5, monoid="S3", r=2, subset=["123", "132"]),
]  # fmt: skip


@pytest.mark.parametrize("task", EXAMPLES, ids=lambda task: task.name)
def test_the_example_in_the_docstring(task) -> None:
    parts = dict(re.findall(r"^ {8}(prompt|chain|answer) +(.+)$", task.__doc__, re.MULTILINE))
    assert task.complete(parts["prompt"].split()).tokens == " ".join(parts.values()).split()


@pytest.mark.parametrize("size", [1, 2, 6, 20])
def test_largest_distance_is_the_last_token(size: int) -> None:
    task = EditDistance(size)
    table = distances(["a"] * size, ["b"] * (size + 2))
    assert max(map(max, table)) == task.largest_distance
    assert str(task.largest_distance) == task.own_tokens[-1]


def test_ed_and_ed_local_have_the_same_prompts_and_answers() -> None:
    task, local = EditDistance(6), EditDistanceLocal(6)
    one, two = task.draw(0, 0, 0, 100), local.draw(0, 0, 0, 100)
    for row in range(100):
        a, b = task.decode(one, row), local.decode(two, row)
        assert (a.prompt, a.answer) == (b.prompt, b.answer)


def test_number_range_of_lis() -> None:
    assert (LIS(110).number_range, LIS(175).number_range) == (250, 351)
    assert LIS(250).vocabulary.dtype == np.uint16
    assert len(LIS(10, number_range=65534).vocabulary) == 2**16
    assert LIS(10, number_range=65534).vocabulary.encode(["65533"])[0] == 2**16 - 1


@pytest.mark.parametrize(
    ("format", "read", "labels"),
    [("tagged", "<sep> 9 7 8 <eos>", "<pad> <pad> 1 1 2"),
     ("online", "<sep> 9 1 7 1 8 <eos>", "<pad> <pad> 1 <sep> 1 <sep> 2")],
)  # fmt: skip
def test_labels_of_lis(format, read, labels) -> None:
    task = LIS(3, format)
    example = task.complete("9 7 8 <sep>".split())
    assert example.tokens == "9 7 8 <sep> 1 1 2".split()
    encoded = task.encode([example])
    assert task.vocabulary.decode(encoded.tokens[0]) == read.split()
    assert task.vocabulary.decode(encoded.labels[0])[: len(labels.split())] == labels.split()
    assert task.max_len == len(read.split()) - 1


NEEDED = [  # task, prompt, positions that each token after the prompt needs
    # 2 * ( 3 + 4 ) = 2 * 7 = 3: positions 0 to 12
    (Arithmetic(2), "2 * ( 3 + 4 ) =", [[0], [1], [2, 3, 4, 5, 6], [], [8, 9, 10]]),
    (LIS(2), "5 6 <sep>", [[0], [0, 1, 3], [], [3, 4]]),
    # first row 6 7 , second row 9 10 , <sep> answer
    (EditDistance(2), "a b | c d <sep>",
     [[0, 3], [0, 4, 6], [], [1, 3, 6], [1, 4, 9, 7, 6], [], [], [10]]),
    # first block 6 7 , b | c d <sep> is 6 to 13, second block 14 15 , <sep>, answer
    (EditDistanceLocal(2), "a b | c d <sep>",
     [[0, 3], [0, 4, 6], [], [1], [], [3], [4], [], [9, 11, 6], [9, 12, 14, 7, 6], [], [], [15]]),
    (MQAR(2), "1 65 2 66 | 2 1 <sep>", [list(range(k)) for k in range(8, 14)]),  # the default
]  # fmt: skip


@pytest.mark.parametrize(("task", "prompt", "needed"), NEEDED, ids=lambda x: getattr(x, "name", ""))
def test_dependencies(task, prompt, needed) -> None:
    assert task.dependencies(task.complete(prompt.split())) == needed


def test_locality_is_the_largest_distance() -> None:
    # r x | c r o <sep> 3 1 3 , 4 3 4 , <sep> 4: the last entry needs x, 12 tokens back, and the
    # entry above to the left, 5 back.
    class OnePrompt(EditDistance):
        def draw_batch(self, seed, stream, first, count, size):
            return self.encode([self.complete("r x | c r o <sep>".split())] * count)

    assert locality(OnePrompt(3)) == (12, 5)
