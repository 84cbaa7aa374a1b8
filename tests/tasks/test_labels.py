"""Labels beside tokens: the same content in every form."""

import pytest

from tasks.generate import SeenPrompts, prompt_hashes
from tasks.lis import LIS
from tasks.word import Word

LABELLED = [LIS(6, "tagged"), Word(6, "tagged", "S3", "all"), LIS(6, "online"),
            Word(6, "online", "S3", "all")]  # fmt: skip
EACH = pytest.mark.parametrize("task", LABELLED, ids=lambda task: f"{task.name}-{task.format}")


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
