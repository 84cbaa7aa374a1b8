"""`generate` writes the same tokens as plain greedy decoding, also at ties and in small batches.

Float64 logits closer than 1e-9 are tied: the lowest id wins, independent of the batch.
"""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_models import (
    MIXERS,
    TASKS,
    plain_greedy,
    prepared,
    small_model,
    trained_model,
    twin_model,
    written,
)  # fmt: skip

from common import RunError, UserError
from evaluation.generate import exact_argmax, generate, megabytes
from evaluation.judge import evaluate
from models.transformer import Transformer
from tasks.arithmetic import Arithmetic
from tasks.lis import LIS
from tasks.sequences import EOS_ID

TASK = TASKS["arithmetic"]
TRAINED = [("arithmetic", 0), ("arithmetic", 150), *((name, 40) for name in TASKS)]


@pytest.mark.parametrize(("task_name", "steps"), TRAINED)
@pytest.mark.parametrize("mixer", MIXERS)
def test_certified_generation_equals_plain_greedy_decoding(task_name, mixer, steps):
    task, model = prepared(task_name, mixer, steps)
    sequences = task.draw(0, 1, 0, 24)
    generation = generate(model, sequences)
    assert written(generation) == plain_greedy(model, sequences)


def test_a_token_above_those_of_the_data():
    """Its id does not fit a 16-bit integer, theirs do."""
    task = LIS(4, number_range=40000)
    sequences = task.encode([task.complete("5 9 7 8 <sep>".split())])
    model = small_model(task)
    model.head.bias.data[35000] = 100
    assert written(generate(model, sequences))[0][-1] == 35000


@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize("ends", [True, False])
def test_a_model_with_a_larger_max_len_stops_at_eos_or_the_tasks_max_len(mixer, ends):
    model = trained_model(TASK, mixer, 40, max_len=2 * TASK.max_len + 3)
    if not ends:
        model.head.bias.data[EOS_ID] = -100
    sequences = TASK.draw(0, 1, 0, 24)
    generation = generate(model, sequences)
    assert generation.tokens.shape == (24, TASK.max_len + 1)
    assert written(generation) == plain_greedy(model, sequences, TASK.max_len)
    if ends:
        assert EOS_ID in [tokens[-1] for tokens in written(generation)]
    else:
        assert (generation.lengths == TASK.max_len + 1).all()


def test_only_sequences_longer_than_the_models_max_len_are_rejected():
    """Only the lengths of the sequences count, not the width of the padded set."""
    small = Arithmetic(2)
    model, sequences = small_model(small), TASK.draw(0, 1, 0, 24)
    longest = int(sequences.lengths.max()) - 1
    with pytest.raises(UserError, match=f"{longest} tokens.* max_len={small.max_len}"):
        evaluate(model, TASK, sequences)
    sequences = TASK.encode([small.decode(small.draw(0, 1, 0, 8), row) for row in range(8)])
    assert sequences.tokens.shape[1] - 1 > model.max_len
    assert written(generate(model, sequences)) == plain_greedy(model, sequences)


def test_nan_weights_are_an_error_not_an_accuracy():
    model = small_model(TASK)
    model.head.weight.data[0, 0] = float("nan")
    with pytest.raises(RunError, match="not finite"):
        evaluate(model, TASK, TASK.draw(0, 1, 0, 5))


@pytest.mark.parametrize("mixer", MIXERS)
def test_a_wrong_step_is_rejected(mixer):
    model = small_model(TASK, mixer)
    model.blocks[0].mixer.step = lambda x, positions, state: torch.zeros_like(x)
    with pytest.raises(UserError, match="`step` differs from `forward`"):
        evaluate(model, TASK, TASK.draw(0, 1, 0, 24))


def test_the_model_is_left_in_float32_on_the_device():
    task, model = prepared("arithmetic", "standard", 0)
    generate(model.double().train(), task.draw(0, 1, 0, 4))
    assert not model.training
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


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
    model, half = twin_model(TASK, mixer, perturbation)
    sequences = TASK.draw(0, 1, 0, 8)
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
    model, half = twin_model(TASK, mixer, 1e-12)
    own = TASK.draw(0, 1, 0, 12)
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
    model = small_model(TASK)
    with torch.no_grad():
        model.head.weight[[5, 7]] = 0.0
        model.head.bias[[5, 7]] = torch.tensor([0.0, lead])
        model.head.bias[[i for i in range(len(model.head.bias)) if i not in (5, 7)]] = -100.0
    sequences = TASK.draw(0, 1, 0, 6)
    generation = generate(model, sequences)
    assert written(generation) == plain_greedy(model, sequences)
    assert generated_ids(written(generation), sequences) == {7}


def test_memory_limit_is_given_or_automatic(monkeypatch):
    cpu, gpu = torch.device("cpu"), torch.device("cuda", 0)
    assert megabytes(300, cpu) == megabytes(300, gpu) == 300
    assert megabytes("auto", cpu) == 1024
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (60 * 2**30, 80 * 2**30))
    assert megabytes("auto", gpu) == 30 * 1024


@pytest.mark.parametrize("count", [20, 200])
def test_batches_fit_the_memory_limit_and_give_the_same_tokens(count, monkeypatch):
    task, model = prepared("arithmetic", "sparse", 150)
    sequences = task.draw(0, 1, 0, count)
    expected = written(generate(model, sequences, 1024))
    heads = model.blocks[0].mixer.num_heads
    bytes_per_token = 8 * (56 * model.dim + 4 * len(task.vocabulary) + 2 * heads * task.max_len)
    hidden, prefill = Transformer.hidden, Transformer.prefill
    certified, generated = [], []

    def noting(self, tokens):
        certified.append(tokens.shape)
        return hidden(self, tokens)

    def noting_too(self, tokens, lengths):
        generated.append(len(lengths))
        return prefill(self, tokens, lengths)

    monkeypatch.setattr(Transformer, "hidden", noting)
    monkeypatch.setattr(Transformer, "prefill", noting_too)
    assert written(generate(model, sequences, 1)) == expected
    assert sum(rows for rows, _ in certified) >= count and generated
    assert max(rows * width for rows, width in certified) * bytes_per_token < 2**20
    assert 4 * max(generated) * model.state_bytes(task.max_len) < 2**20
