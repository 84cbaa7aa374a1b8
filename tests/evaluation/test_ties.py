"""Float64 logits closer than 1e-9 are tied: the lowest id wins, independent of the batch."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_models import MIXERS, TASKS, plain_greedy, small_model, twin_model, written

from evaluation.generate import exact_argmax, generate


@given(st.lists(st.sampled_from([0.0, 1.0, 1 - 1e-12, 1 - 9e-10, 1 - 2e-9, 1 + 1e-12]), min_size=1))
def test_the_arg_max_is_the_lowest_id_within_the_margin(logits):
    """Ties are relative to the largest logit, not to the next one, so they do not chain."""
    found = int(exact_argmax(torch.tensor([logits], dtype=torch.float64)))
    tied = [i for i, logit in enumerate(logits) if max(logits) - logit < 1e-9]
    assert found == tied[0]


def generated_ids(rows, sequences):
    both = zip(rows, sequences.prompt_lengths, strict=True)
    return {i for tokens, start in both for i in tokens[start:]}


@pytest.mark.parametrize("perturbation", [0.0, 1e-12, -1e-12])
@pytest.mark.parametrize("mixer", MIXERS)
def test_near_ties_depend_on_neither_batch_size_nor_order(mixer, perturbation):
    task = TASKS["arithmetic"]()
    model, half = twin_model(task, mixer, perturbation)
    sequences = task.draw(0, 1, 0, 8)
    order = np.random.default_rng(0).permutation(8)
    expected = plain_greedy(model, sequences)
    generated = generated_ids(expected, sequences)
    assert len(generated) > 2
    assert not any(half <= token < 2 * half for token in generated)
    for memory_mb in (1024, 0.001):
        assert written(generate(model, sequences, memory_mb)) == expected
    shuffled = written(generate(model, sequences.select(order), 0.05))
    assert shuffled == [expected[row] for row in order]


@pytest.mark.parametrize("mixer", MIXERS)
def test_certification_accepts_only_the_lowest_id_of_a_tie(mixer):
    """The model's own text is certified; with its first token replaced by the twin it is not."""
    task = TASKS["arithmetic"]()
    model, half = twin_model(task, mixer, 1e-12)
    own = task.draw(0, 1, 0, 12)
    generation = generate(model, own)
    own.tokens[:], own.lengths[:] = generation.tokens, generation.lengths
    assert (generate(model, own).first_mistake == -1).all()
    rows = np.arange(12)
    first_token = own.tokens[rows, own.prompt_lengths]
    assert (first_token < half).all()
    own.tokens[rows, own.prompt_lengths] = first_token + half
    again = generate(model, own)
    assert (again.first_mistake == own.prompt_lengths).all()
    assert written(again) == written(generation)


@pytest.mark.parametrize("lead", [3e-9, 1e-7])
def test_a_lead_beyond_a_tie_is_decided_in_float64(lead):
    """Below the resolution of float32 but not a tie: the token with the larger logit wins."""
    task = TASKS["arithmetic"]()
    model = small_model(task)
    with torch.no_grad():
        model.head.weight[[5, 7]] = 0.0
        model.head.bias[[5, 7]] = torch.tensor([0.0, lead])
        model.head.bias[[i for i in range(len(model.head.bias)) if i not in (5, 7)]] = -100.0
    sequences = task.draw(0, 1, 0, 6)
    generation = generate(model, sequences)
    assert written(generation) == plain_greedy(model, sequences)
    assert generated_ids(written(generation), sequences) == {7}
