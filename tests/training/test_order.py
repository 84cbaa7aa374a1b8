import collections

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from training.order import BatchOrder


@settings(max_examples=30, deadline=None)
@given(count=st.integers(1, 300), batch_size=st.integers(1, 70), epoch=st.integers(0, 3))
def test_every_epoch_holds_every_sequence_once(count, batch_size, epoch):
    order = BatchOrder(count, batch_size, seed=5)
    first = epoch * order.batches_per_epoch
    seen = [order.indices(first + i) for i in range(order.batches_per_epoch)]
    assert sorted(torch.cat(seen).tolist()) == list(range(count))
    assert all(len(batch) == order.batch_size for batch in seen[:-1])
    assert 0 < len(seen[-1]) <= order.batch_size


def test_a_batch_is_a_function_of_seed_and_step():
    one, other = BatchOrder(500, 16, 1), BatchOrder(500, 16, 1)
    one.indices(70)
    assert torch.equal(one.indices(3), other.indices(3))
    assert not torch.equal(BatchOrder(500, 16, 2).indices(3), other.indices(3))
    assert not torch.equal(one.indices(3), one.indices(3 + one.batches_per_epoch))


def test_a_batch_is_a_plain_sample():
    """Neighbours in the data fall into one batch as often as chance has it: 63 of 1,999 pairs.

    A twentieth of the batches hold two of the same pair; sorting would put most pairs together.
    """
    order = BatchOrder(2000, 64, 0)
    together = 0
    for step in range(order.batches_per_epoch):
        held = set(order.indices(step).tolist())
        together += sum(i + 1 in held for i in held)
    expected = 1999 * 63 / 1999
    assert abs(together - expected) < 4 * expected**0.5


def test_batches_hold_the_mixture_of_the_data():
    """Each batch of three kinds, a half, a third and a sixth, as a hypergeometric draw."""
    kinds = torch.tensor([0] * 3000 + [1] * 2000 + [2] * 1000)
    order = BatchOrder(len(kinds), 60, 3)
    counts = torch.stack(
        [torch.bincount(kinds[order.indices(i)], minlength=3) for i in range(100)]
    ).double()
    assert counts.sum(0).tolist() == [3000, 2000, 1000]
    for kind, share in enumerate((1 / 2, 1 / 3, 1 / 6)):
        variance = 60 * share * (1 - share) * (6000 - 60) / (6000 - 1)
        assert counts[:, kind].var().item() == pytest.approx(variance, rel=0.5)


def test_seeds_give_other_orders():
    firsts = collections.Counter(int(BatchOrder(50, 1, seed).indices(0)) for seed in range(200))
    assert len(firsts) > 35
