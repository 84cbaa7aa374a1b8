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
