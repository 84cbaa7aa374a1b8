import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.arithmetic import Arithmetic
from tasks.task import SequenceSet
from training.batches import BatchOrder, SequenceTensors


def drawn(count=200):
    return Arithmetic(3).draw(0, 7, 0, count)


@settings(max_examples=30, deadline=None)
@given(count=st.integers(1, 300), batch_size=st.integers(1, 70), epoch=st.integers(0, 3))
def test_every_epoch_holds_every_sequence_once(count, batch_size, epoch):
    order = BatchOrder(torch.arange(count) % 11 + 2, batch_size, seed=5)
    first = epoch * order.batches_per_epoch
    seen = [order.indices(first + i) for i in range(order.batches_per_epoch)]
    assert sorted(torch.cat(seen).tolist()) == list(range(count))
    assert all(len(batch) <= batch_size for batch in seen)


def test_a_batch_is_a_function_of_seed_and_step():
    lengths = torch.arange(500) % 13 + 2
    one, other = BatchOrder(lengths, 16, 1), BatchOrder(lengths, 16, 1)
    one.indices(70)
    assert torch.equal(one.indices(3), other.indices(3))
    assert not torch.equal(BatchOrder(lengths, 16, 2).indices(3), other.indices(3))
    assert not torch.equal(one.indices(3), one.indices(3 + one.batches_per_epoch))


def test_sorting_by_length_leaves_little_padding():
    lengths = torch.from_numpy(np.random.default_rng(0).integers(50, 200, 20_000))
    order = BatchOrder(lengths, 64, 0)
    order.indices(0)
    assert order.padded_share() < 0.03


def test_batch_is_trimmed_and_masks_prompt_and_padding():
    sequences = drawn()
    tensors = SequenceTensors(sequences)
    index = torch.tensor([3, 11, 42])
    batch = tensors.batch(index)
    assert batch.tokens.shape[1] == sequences.lengths[index.numpy()].max()
    for row, i in enumerate(index.tolist()):
        prompt, length = int(sequences.prompt_lengths[i]), int(sequences.lengths[i])
        counted = torch.nonzero(batch.loss_mask[row]).flatten() + 1
        assert counted.tolist() == list(range(prompt, length))
        assert batch.tokens[row, length - 1] == 1  # EOS is the last target


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_targets_are_those_of_the_mask(data):
    sequences = SequenceTensors(drawn())
    rows = st.lists(st.integers(0, len(sequences) - 1), min_size=1, max_size=9)
    batch = sequences.batch(torch.tensor(data.draw(rows)), data.draw(st.integers(1, 20)))
    values = torch.randn(*batch.loss_mask.shape, 3, requires_grad=True)
    chosen = batch.at_targets(values)
    assert torch.equal(chosen, values[batch.loss_mask])
    direction = torch.randn_like(chosen)
    one, other = (
        torch.autograd.grad(x, values, direction) for x in (chosen, values[batch.loss_mask])
    )
    assert torch.equal(one[0], other[0])


def test_sixteen_bit_tokens_survive():
    tokens = np.array([[5, 300, 40_000, 1]], dtype=np.uint16)
    sequences = SequenceSet(tokens, np.array([4], np.int32), np.array([2], np.int32))
    assert SequenceTensors(sequences).batch(torch.tensor([0])).tokens.tolist() == [
        [5, 300, 40_000, 1]
    ]
