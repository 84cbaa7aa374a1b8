"""Batches, padded and packed, whole and in parts, compared with plain loops; batch order."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import loss_of, small_model
from tiny import MIXERS, plain_logits, plain_loss, tiny_trainer

from tasks.arithmetic import Arithmetic
from tasks.lis import LIS
from tasks.sequences import SequenceSet
from tasks.word import Word
from training.data import BatchOrder, Layout, SequenceTensors
from training.trainer import validate

TASK = Arithmetic(3)
TAGGED = [LIS(6, "tagged"), Word(6, "tagged", "S3", "all")]
LENGTHS = st.lists(st.integers(3, 40), min_size=1, max_size=70)


def made_up(lengths):
    """Random sequences of these lengths; a third of each is the prompt."""
    lengths = np.array(lengths, np.int32)
    rng = np.random.default_rng(0)
    tokens = rng.integers(2, 20, (len(lengths), lengths.max())).astype(np.uint8)
    tokens[np.arange(tokens.shape[1]) >= lengths[:, None]] = 0
    return SequenceTensors(SequenceSet(tokens, lengths, np.maximum(1, lengths // 3)))


def cut(sequences, max_tokens, most=None, packed=True):
    """Split all sequences into parts of at most `max_tokens` tokens and `most` sequences."""
    index = torch.arange(len(sequences))
    return sequences.parts(index, Layout(packed, max_tokens), most)


def test_16_bit_tokens_are_preserved():
    tokens = np.array([[5, 300, 40_000, 1]], dtype=np.uint16)
    sequences = SequenceSet(tokens, np.array([4], np.int32), np.array([2], np.int32))
    batch = SequenceTensors(sequences).batch(torch.tensor([0]))
    assert (batch.inputs.tolist(), batch.targets.tolist()) == ([[5, 300, 40_000]], [40_000, 1])


@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize("task", [TASK, *TAGGED], ids=lambda task: task.name)
def test_the_loss_is_the_mean_over_chain_answer_and_eos_or_all_labels(task, mixer):
    sequences, model = task.draw(0, 7, 0, 9), small_model(task, mixer).eval()
    tensors, every = SequenceTensors(sequences), torch.arange(9)
    assert tensors.batch(every).inputs.shape == (9, int(sequences.lengths.max()) - 1)
    expected = plain_loss([plain_logits(model, task, sequences, row) for row in range(9)])
    for layout in (Layout(), Layout(width_step=5), Layout(packed=True)):
        (index,) = tensors.parts(every)
        loss = loss_of(model, tensors.batch(index, layout)).item()
        assert loss == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("task", [LIS(3), Word(4, "tagged", "S3")], ids=lambda task: task.name)
def test_validation_counts_sequences_with_only_correct_predictions(tmp_path, task):
    trainer = tiny_trainer(tmp_path, task, steps=60)
    trainer.fit()
    sequences, model = task.draw(0, 2, 0, 50), trainer.model.eval()
    found = [plain_logits(model, task, sequences, row) for row in range(50)]
    right = np.mean([bool((logits.argmax(-1) == labels).all()) for logits, labels in found])
    assert 0 < right < 1
    for batch_size in (7, 50):
        loss, exact = validate(model, SequenceTensors(sequences), "float32", batch_size)
        assert exact == right
        assert loss == pytest.approx(plain_loss(found))


@settings(max_examples=100)
@given(LENGTHS, st.integers(1, 2000), st.one_of(st.none(), st.integers(1, 70)))
def test_parts_cover_the_batch_and_respect_the_limits(lengths, max_tokens, most):
    """Only a single longer sequence exceeds the limit, and no two neighbours fit into one part."""
    sequences = made_up(lengths)
    parts = cut(sequences, max_tokens, most)
    held = torch.cat(parts)
    assert sorted(held.tolist()) == list(range(len(lengths)))
    assert sequences.host_lengths[held].diff().ge(0).all()
    assert all(0 < len(part) <= (most or len(lengths)) for part in parts)
    tokens = [int((sequences.host_lengths[part] - 1).sum()) for part in parts]
    assert all(n <= max_tokens or len(part) == 1 for n, part in zip(tokens, parts, strict=True))
    cuts = cut(sequences, max_tokens, packed=False)
    padded = [sequences.batch(part).inputs.shape for part in cuts]
    assert all(rows * width <= max_tokens or rows == 1 for rows, width in padded)
    if most is None:
        assert all(a + b > max_tokens for a, b in pairwise(tokens))


@settings(max_examples=30)
@given(count=st.integers(1, 300), batch_size=st.integers(1, 70), epoch=st.integers(0, 3))
def test_every_epoch_contains_every_sequence_once(count, batch_size, epoch):
    order = BatchOrder(count, batch_size, seed=5)
    first = epoch * order.batches_per_epoch
    seen = [order.indices(first + i) for i in range(order.batches_per_epoch)]
    assert sorted(torch.cat(seen).tolist()) == list(range(count))
    assert all(len(batch) == order.batch_size for batch in seen[:-1])
    assert 0 < len(seen[-1]) <= order.batch_size
    held = [sum(map(len, seen[:i])) for i in range(len(seen) + 1)]
    before = [order.sequences_before(first + i) for i in range(len(seen) + 1)]
    assert before == [epoch * count + own for own in held]


def test_a_batch_depends_only_on_seed_and_step():
    one, other = BatchOrder(500, 16, 1), BatchOrder(500, 16, 1)
    one.indices(70)
    assert torch.equal(one.indices(3), other.indices(3))
    assert not torch.equal(BatchOrder(500, 16, 2).indices(3), other.indices(3))
    assert not torch.equal(one.indices(3), one.indices(3 + one.batches_per_epoch))
