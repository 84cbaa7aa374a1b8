"""`generate` writes the same tokens as plain greedy decoding."""

import pytest
import torch
from small_models import MIXERS, TASKS, plain_greedy, prepared, small_model, trained_model, written

from common import RunError, UserError
from evaluation.generate import generate
from evaluation.judge import evaluate
from tasks.arithmetic import Arithmetic
from tasks.lis import LIS
from tasks.sequences import EOS_ID

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
    task = TASKS["arithmetic"]()
    model = trained_model(task, mixer, 40, max_len=2 * task.max_len + 3)
    if not ends:
        model.head.bias.data[EOS_ID] = -100
    sequences = task.draw(0, 1, 0, 24)
    generation = generate(model, sequences)
    assert generation.tokens.shape == (24, task.max_len + 1)
    assert written(generation) == plain_greedy(model, sequences, task.max_len)
    if ends:
        assert EOS_ID in [tokens[-1] for tokens in written(generation)]
    else:
        assert (generation.lengths == task.max_len + 1).all()


SMALL, LARGE = Arithmetic(2), Arithmetic(3)


def test_only_sequences_longer_than_the_models_max_len_are_rejected():
    """Only the lengths of the sequences count, not the width of the padded set."""
    model, sequences = small_model(SMALL), LARGE.draw(0, 1, 0, 24)
    longest = int(sequences.lengths.max()) - 1
    with pytest.raises(UserError, match=f"{longest} tokens.* max_len={SMALL.max_len}"):
        evaluate(model, LARGE, sequences)
    sequences = LARGE.encode([SMALL.decode(SMALL.draw(0, 1, 0, 8), row) for row in range(8)])
    assert sequences.tokens.shape[1] - 1 > model.max_len
    assert written(generate(model, sequences)) == plain_greedy(model, sequences)


def test_nan_weights_are_an_error_not_an_accuracy():
    task = TASKS["arithmetic"]()
    model = small_model(task)
    model.head.weight.data[0, 0] = float("nan")
    with pytest.raises(RunError, match="not finite"):
        evaluate(model, task, task.draw(0, 1, 0, 5))


@pytest.mark.parametrize("mixer", MIXERS)
def test_a_wrong_step_is_rejected(mixer):
    task = TASKS["arithmetic"]()
    model = small_model(task, mixer)
    model.blocks[0].mixer.step = lambda x, positions, state: torch.zeros_like(x)
    with pytest.raises(UserError, match="`step` differs from `forward`"):
        evaluate(model, task, task.draw(0, 1, 0, 24))


def test_the_model_is_left_in_float32_on_the_device():
    task, model = prepared("arithmetic", "standard", 0)
    generate(model.double().train(), task.draw(0, 1, 0, 4))
    assert not model.training
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
