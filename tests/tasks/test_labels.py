"""Labels beside tokens: the same content in every form."""

import pytest

from tasks.generate import SeenPrompts, prompt_hashes
from tasks.lis import LIS
from tasks.word import Word

LABELLED = [LIS(6, "tagged"), Word(6, "tagged", "S3", "all"), LIS(6, "online"),
            Word(6, "online", "S3", "all")]  # fmt: skip
EACH = pytest.mark.parametrize("task", LABELLED, ids=lambda task: f"{task.name}-{task.format}")


@EACH
def test_labels_are_the_chain(task):
    cot = task.with_parameters(format="cot")
    drawn, whole = task.draw(4, 1, 7, 50), cot.draw(4, 1, 7, 50)
    for row in range(50):
        example, read = task.decode(drawn, row), cot.decode(whole, row)
        assert (example.prompt, example.answer) == (read.prompt, read.chain[:-1])
        assert task.check(example.tokens) is None
        wrong = next(token for token in task.vocabulary.tokens[3:] if token != example.answer[-1])
        assert task.check([*example.tokens[:-1], wrong]) is not None
        assert len(task.dependencies(example)) == 6
    assert drawn.tokens.shape == drawn.labels.shape == (50, task.max_len + 1)
    assert (drawn.select(slice(3, 5)).labels == drawn.labels[3:5]).all()


@pytest.mark.parametrize(
    ("format", "read", "labels"),
    [
        ("tagged", "<sep> 9 7 8 <eos>", "<pad> <pad> 1 1 2"),
        ("online", "<sep> 9 1 7 1 8 <eos>", "<pad> <pad> 1 <sep> 1 <sep> 2"),
    ],
)
def test_by_hand(format, read, labels):
    task = LIS(3, format)
    example = task.complete("9 7 8 <sep>".split())
    assert example.tokens == "9 7 8 <sep> 1 1 2".split()
    encoded = task.encode([example])
    assert task.vocabulary.decode(encoded.tokens[0]) == read.split()
    assert task.vocabulary.decode(encoded.labels[0])[: len(labels.split())] == labels.split()
    assert task.max_len == len(read.split()) - 1


@EACH
def test_prompts_are_told_apart_by_all_their_tokens(task):
    drawn = task.draw(0, 0, 0, 300)
    different = len(set(map(bytes, drawn.tokens)))
    assert len(set(prompt_hashes(drawn).tolist())) == different > 250
    seen = SeenPrompts(400)
    assert seen.add(drawn).sum() == different
    assert not seen.add(drawn).any()
