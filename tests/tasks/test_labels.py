"""Labels beside tokens: the same content in every form, and nothing new where there are none."""

import pytest

from tasks.generate import SeenPrompts, prompt_hashes
from tasks.lis import LIS
from tasks.word import Word

LABELLED = [
    LIS(6, "tagged"), Word(6, "tagged", "S3", "all"), LIS(6, "online"),
    Word(6, "online", "S3", "all"),
]  # fmt: skip


@pytest.mark.parametrize("task", LABELLED, ids=lambda task: f"{task.name}-{task.format}")
def test_labels_are_the_chain(task):
    drawn, cot = task.draw(4, 1, 7, 50), task.with_parameters(format="cot").draw(4, 1, 7, 50)
    for row in range(50):
        example, whole = (
            task.decode(drawn, row),
            task.with_parameters(format="cot").decode(cot, row),
        )
        assert example.prompt == whole.prompt
        assert example.answer == whole.chain[:-1]
        assert task.check(example.tokens) is None
        wrong = next(token for token in task.vocabulary.tokens[3:] if token != example.answer[-1])
        assert task.check([*example.tokens[:-1], wrong]) is not None
        assert len(task.dependencies(example)) == len(task.chain_steps(example)) == 6
    encoded = task.encode([task.decode(drawn, row) for row in range(50)])
    for name in ("tokens", "lengths", "prompt_lengths", "labels"):
        assert (getattr(encoded, name) == getattr(drawn, name)).all()
    assert drawn.tokens.shape == drawn.labels.shape == (50, task.max_len + 1)
    assert (drawn.select(slice(3, 5)).labels == drawn.labels[3:5]).all()


def test_by_hand():
    task = LIS(3, "tagged")
    assert task.complete("9 7 8 <sep>".split()).tokens == "9 7 8 <sep> 1 1 2".split()
    encoded = task.encode([task.complete("9 7 8 <sep>".split())])
    assert task.vocabulary.decode(encoded.tokens[0]) == "<sep> 9 7 8 <eos>".split()
    assert task.vocabulary.decode(encoded.labels[0]) == "<pad> <pad> 1 1 2".split()
    assert task.max_len == 4
    online = LIS(3, "online")
    fed_back = online.encode([online.complete("9 7 8 <sep>".split())])
    assert task.vocabulary.decode(fed_back.tokens[0]) == "<sep> 9 1 7 1 8 <eos>".split()
    assert task.vocabulary.decode(fed_back.labels[0]) == "<pad> <pad> 1 <sep> 1 <sep> 2".split()
    assert online.max_len == 6


@pytest.mark.parametrize("task", LABELLED, ids=lambda task: f"{task.name}-{task.format}")
def test_prompts_are_told_apart_by_all_their_tokens(task):
    drawn = task.draw(0, 0, 0, 300)
    different = len(set(map(bytes, drawn.tokens)))
    assert len(set(prompt_hashes(drawn).tolist())) == different > 250
    seen = SeenPrompts(400)
    assert seen.add(drawn).sum() == different
    assert not seen.add(drawn).any()
