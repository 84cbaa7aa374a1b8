from collections import Counter

from tasks.copying import Copying
from tasks.generate import planned_sizes


def test_example_formats_and_dependencies() -> None:
    sequence = Copying(4).complete("h d d q <sep>".split())
    assert (sequence.chain, sequence.answer) == ([], ["h", "d", "d", "q"])
    assert Copying(4, "cot").complete(sequence.prompt) == sequence
    assert Copying(4).dependencies(sequence) == [[0], [1], [2], [3]]


def test_training_has_every_length_and_tests_the_longest() -> None:
    sizes = Counter(planned_sizes(Copying(5), "train", 1000, 0).tolist())
    assert sizes == dict.fromkeys(range(1, 6), 200)
    assert set(planned_sizes(Copying(5), "test", 10, 0).tolist()) == {5}
