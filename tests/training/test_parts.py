"""A batch in parts against the plain padded batch."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import MIXERS, tiny_model, tiny_trainer

from tasks.arithmetic import Arithmetic
from tasks.ed import EditDistance
from tasks.lis import LIS
from tasks.task import SequenceSet
from training.batches import SequenceTensors
from training.loss import masked_loss
from training.parts import ON_CPU, Cutting, padded_share, parts_of, sizes_without_padding

TASK = Arithmetic(3)
LENGTHS = st.lists(st.integers(3, 40), min_size=1, max_size=70)


def made_up(lengths):
    """Sequences of these lengths, prompts of a third of them."""
    lengths = np.array(lengths, np.int32)
    rng = np.random.default_rng(0)
    tokens = rng.integers(2, 20, (len(lengths), lengths.max())).astype(np.uint8)
    tokens[np.arange(tokens.shape[1]) >= lengths[:, None]] = 0
    return SequenceTensors(SequenceSet(tokens, lengths, np.maximum(1, lengths // 3)))


def cut(sequences, overhead, most=None):
    """The parts of all sequences, where one more part costs ``overhead`` tokens."""
    index = sequences.sorted_by_length(torch.arange(len(sequences)))
    return parts_of(sequences, index, Cutting(overhead, 16, 1), most)


@settings(max_examples=100, deadline=None)
@given(LENGTHS, st.integers(0, 200), st.one_of(st.none(), st.integers(1, 70)))
def test_parts_make_up_the_batch(lengths, overhead, most):
    sequences = made_up(lengths)
    parts = cut(sequences, overhead, most)
    held = torch.cat(parts)
    assert sorted(held.tolist()) == list(range(len(lengths)))
    assert sequences.host_lengths[held].diff().ge(0).all()
    assert all(0 < len(part) <= (most or len(lengths)) for part in parts)


@pytest.mark.parametrize("cutting", [Cutting(0, 4, 1), None])
def test_no_sequences_are_no_parts(cutting):
    assert parts_of(made_up([5, 6]), torch.arange(0), cutting, 3) == []


@settings(max_examples=100, deadline=None)
@given(LENGTHS, st.integers(0, 200), st.integers(1, 9))
def test_every_cut_saves_more_than_a_part_costs(lengths, overhead, grain):
    lengths = np.sort(lengths)

    def cost(sizes):
        ends = np.cumsum(sizes)
        return sum(size * lengths[end - 1] for size, end in zip(sizes, ends, strict=True))

    sizes = sizes_without_padding(lengths, grain, overhead)
    assert sum(sizes) == len(lengths) and min(sizes) > 0
    extra = len(sizes) - 1
    assert cost(sizes) + extra * overhead <= cost([len(lengths)])
    assert extra == 0 or cost(sizes) + extra * overhead < cost([len(lengths)])


def gradient_of(model, sequences, parts):
    """Loss and gradient summed over parts, as the trainer weighs them."""
    model.zero_grad()
    total = sequences.num_targets(torch.cat(parts))
    loss = 0.0
    for part in parts:
        batch = sequences.batch(part)
        share = masked_loss(model, batch) * (len(batch.counted) / total)
        share.backward()
        loss += share.item()
    return loss, torch.cat([p.grad.flatten() for p in model.parameters()])


@pytest.mark.parametrize("mixer", MIXERS)
@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(3, 18), min_size=2, max_size=40), st.integers(0, 60))
def test_loss_and_gradient_are_those_of_the_padded_batch(mixer, lengths, overhead):
    sequences, model = made_up(lengths), tiny_model(Arithmetic(3), mixer).double()
    model.train()
    whole = gradient_of(model, sequences, [torch.arange(len(lengths))])
    parts = gradient_of(model, sequences, cut(sequences, overhead))
    assert parts[0] == pytest.approx(whole[0], rel=1e-6)
    torch.testing.assert_close(parts[1], whole[1], rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("size", [None, 5])
def test_a_step_has_the_gradient_of_the_padded_batch(tmp_path: Path, size):
    """The trainer itself: what its optimiser is given is the gradient of the plain mean."""
    trainer = tiny_trainer(tmp_path, TASK, learning_rate=1e-9, micro_batch_size=size)
    trainer.cutting = Cutting(10, 16, 1)
    trainer.step()
    assert len(trainer.parts(0)) > 1
    found = torch.cat([p.grad.flatten() for p in trainer.model.parameters()])
    model = tiny_model(TASK).train()
    plain = trainer.train.batch(trainer.order.indices(0))
    masked_loss(model, plain).backward()
    expected = torch.cat([p.grad.flatten() for p in model.parameters()])
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-6)


def test_mixed_lengths_are_cut_and_like_lengths_are_not():
    """ED and LIS have nearly equal lengths: they do not pay for parts."""
    shares = {}
    for name, task in (("mixed", Arithmetic(10)), ("ed", EditDistance(6)), ("lis", LIS(20))):
        drawn = [task.draw(0, 1, 0, 64)]
        if name == "mixed":
            drawn = [task.draw(0, 1, 0, 16, size=size) for size in (3, 6, 8, 10)]
        width = max(d.tokens.shape[1] for d in drawn)
        tokens = [np.pad(d.tokens, ((0, 0), (0, width - d.tokens.shape[1]))) for d in drawn]
        sequences = SequenceTensors(
            SequenceSet(
                np.concatenate(tokens),
                np.concatenate([d.lengths for d in drawn]),
                np.concatenate([d.prompt_lengths for d in drawn]),
            )
        )
        index = sequences.sorted_by_length(torch.arange(64))
        parts = parts_of(sequences, index, ON_CPU["float32"], None)
        shares[name] = len(parts), padded_share(sequences, parts, 1)
        whole = padded_share(sequences, [index], 1)
        assert shares[name][1] <= whole
    assert shares["lis"] == (1, 0.0)
    assert shares["ed"][0] <= 2
    assert shares["mixed"][0] > 2 and shares["mixed"][1] < 0.25


def test_padded_share_is_a_function_of_the_configuration(tmp_path):
    untrained = tiny_trainer(tmp_path / "a", TASK)
    share = untrained.padded_share()
    trained = tiny_trainer(tmp_path / "b", TASK)
    trained.fit()
    assert trained.padded_share() == share == untrained.padded_share()
    batches = [trained.train.batch(p) for step in range(30) for p in trained.parts(step)]
    padded = sum(batch.tokens[:, 1:].numel() for batch in batches)
    held = torch.cat([trained.order.indices(step) for step in range(30)])
    assert share == pytest.approx(1 - int((trained.train.lengths[held] - 1).sum()) / padded)
