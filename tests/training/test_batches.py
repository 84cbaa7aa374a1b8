import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.arithmetic import Arithmetic
from tasks.task import SequenceSet
from training.batches import SequenceTensors


def drawn(count=200):
    return Arithmetic(3).draw(0, 7, 0, count)


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
