from tasks.mqar import MQAR
from tasks.task import Example


def test_hand_worked_example() -> None:
    task = MQAR(3, queries=2)
    sequence = task.complete("3 70 41 66 9 101 | 9 3 <sep>".split())
    assert (" ".join(sequence.chain), sequence.answer) == ("9 101 3 70 <sep>", ["70"])
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


def test_sizes_of_the_vocabulary() -> None:
    assert (MQAR(8).vocab_size, MQAR(64).vocab_size) == (128, 256)
    assert MQAR(8, capacity=64).vocab_size == 256
    odd = MQAR(2, vocab_size=5)
    assert (list(odd.keys), list(odd.values)) == ([1, 2], [3, 4, 5])
    assert len(MQAR(4, vocab_size=8192).vocabulary) == 8192 + 4
