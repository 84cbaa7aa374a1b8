"""A batch in parts and without padding against the plain padded batch."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import MIXERS, tiny_model, tiny_trainer

from tasks.arithmetic import Arithmetic
from tasks.task import SequenceSet
from training.batches import SequenceTensors
from training.loss import masked_loss, packed_loss
from training.parts import PartSizes, parts_of

TASK = Arithmetic(3)
LENGTHS = st.lists(st.integers(3, 40), min_size=1, max_size=70)


def made_up(lengths):
    """Sequences of these lengths, prompts of a third of them."""
    lengths = np.array(lengths, np.int32)
    rng = np.random.default_rng(0)
    tokens = rng.integers(2, 20, (len(lengths), lengths.max())).astype(np.uint8)
    tokens[np.arange(tokens.shape[1]) >= lengths[:, None]] = 0
    return SequenceTensors(SequenceSet(tokens, lengths, np.maximum(1, lengths // 3)))


def cut(sequences, most_tokens, most=None):
    """The parts of all sequences, of at most so many tokens and sequences."""
    index = sequences.sorted_by_length(torch.arange(len(sequences)))
    return parts_of(sequences, index, PartSizes(most_tokens, 1, 1), most)


@settings(max_examples=100, deadline=None)
@given(LENGTHS, st.integers(1, 2000), st.one_of(st.none(), st.integers(1, 70)))
def test_parts_make_up_the_batch(lengths, most_tokens, most):
    sequences = made_up(lengths)
    parts = cut(sequences, most_tokens, most)
    held = torch.cat(parts)
    assert sorted(held.tolist()) == list(range(len(lengths)))
    assert sequences.host_lengths[held].diff().ge(0).all()
    assert all(0 < len(part) <= (most or len(lengths)) for part in parts)


@settings(max_examples=100, deadline=None)
@given(LENGTHS, st.integers(1, 2000))
def test_parts_hold_no_more_tokens_than_they_may(lengths, most_tokens):
    """But for a sequence that alone has more, and no part could do without being."""
    sequences = made_up(lengths)
    parts = cut(sequences, most_tokens)
    tokens = [int((sequences.host_lengths[part] - 1).sum()) for part in parts]
    assert all(n <= most_tokens or len(part) == 1 for n, part in zip(tokens, parts, strict=True))
    assert all(a + b > most_tokens for a, b in pairwise(tokens))


@pytest.mark.parametrize("sizes", [PartSizes(10, 1, 1), None])
def test_no_sequences_are_no_parts(sizes):
    assert parts_of(made_up([5, 6]), torch.arange(0), sizes, 3) == []


@settings(max_examples=50, deadline=None)
@given(LENGTHS, st.integers(1, 9), st.randoms())
def test_a_packed_batch_has_the_inputs_and_targets_of_the_padded_one(lengths, step, random):
    sequences = made_up(lengths)
    rows = torch.tensor(random.sample(range(len(lengths)), random.randint(1, len(lengths))))
    index = sequences.sorted_by_length(rows)
    plain, packed = sequences.batch(index), sequences.packed(index, step, step)
    offsets = packed.packing.offsets
    assert len(packed.tokens) == packed.packing.size == -(-offsets[-1] // step) * step
    for row, (start, end) in enumerate(pairwise(offsets)):
        torch.testing.assert_close(
            packed.tokens[start:end].long(), plain.tokens[row, : end - start]
        )
        assert packed.packing.positions[start:end].tolist() == list(range(end - start))
    torch.testing.assert_close(packed.targets, plain.at_targets(plain.tokens[:, 1:]))
    inputs = plain.at_targets(plain.tokens[:, :-1])
    torch.testing.assert_close(packed.tokens[packed.counted].long(), inputs)


def gradient_of(model, losses):
    """Loss and gradient summed over parts."""
    model.zero_grad()
    total = 0.0
    for loss in losses:
        loss.backward()
        total += loss.item()
    return total, torch.cat([p.grad.flatten() for p in model.parameters()])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mixer", MIXERS)
@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(3, 18), min_size=2, max_size=40), st.integers(30, 900))
def test_loss_and_gradient_are_those_of_the_padded_batch(mixer, dtype, lengths, most_tokens):
    """The padded batch in float64, the packed one in both types."""
    sequences, model = made_up(lengths), tiny_model(Arithmetic(3), mixer).train()
    total = int(sequences.host_num_targets.sum())
    wanted = gradient_of(
        model.double(), [masked_loss(model, sequences.batch(torch.arange(len(lengths))))]
    )
    model.to(dtype)
    batches = [sequences.packed(part, 8, 4) for part in cut(sequences, most_tokens)]
    found = gradient_of(model, (packed_loss(model, b) * (len(b.counted) / total) for b in batches))
    tolerance = 1e-5 if dtype == torch.float32 else 1e-10
    assert found[0] == pytest.approx(wanted[0], rel=tolerance)
    largest = float(wanted[1].abs().max())
    torch.testing.assert_close(
        found[1].double(), wanted[1], rtol=tolerance, atol=tolerance * largest
    )


@pytest.mark.parametrize("size", [None, 5])
def test_a_step_has_the_gradient_of_the_padded_batch(tmp_path: Path, size):
    """The trainer itself: what its optimiser is given is the gradient of the plain mean."""
    trainer = tiny_trainer(tmp_path, TASK, learning_rate=1e-9, micro_batch_size=size)
    trainer.part_sizes = PartSizes(100, 1, 1)
    trainer.step()
    assert len(trainer.parts(0)) > 1
    found = torch.cat([p.grad.flatten() for p in trainer.model.parameters()])
    model = tiny_model(TASK).train()
    plain = trainer.train.batch(trainer.order.indices(0))
    masked_loss(model, plain).backward()
    expected = torch.cat([p.grad.flatten() for p in model.parameters()])
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_padded_share_counts_the_filler(tmp_path, precision):
    trainer = tiny_trainer(tmp_path, TASK, precision=precision)
    trainer.fit()
    share = trainer.padded_share()
    assert share == tiny_trainer(tmp_path, TASK, precision=precision).padded_share()
    steps = trainer.part_sizes.steps
    batches = [
        trainer.train.packed(part, *steps) for step in range(30) for part in trainer.parts(step)
    ]
    held = sum(len(batch.tokens) for batch in batches)
    real = sum(int(batch.packing.offsets[-1]) for batch in batches)
    assert share == pytest.approx(1 - real / held)
    assert (share > 0) == (precision == "bfloat16")
