"""A tolerance found too small is raised and all is done again; a false `step` is refused."""

import pytest
import torch
from small_models import MIXERS, TASKS, plain_greedy, small_model, written

from common import RunError
from evaluation import generate as generation
from evaluation.argmax import LARGEST_BATCH, ExactArgmax, ToleranceTooSmall
from evaluation.generate import generate
from evaluation.judge import evaluate


def test_a_tolerance_found_too_small_is_raised(models, monkeypatch):
    task, model = models("arithmetic", "standard", 40)
    sequences = task.draw(0, 1, 0, 24)
    monkeypatch.setattr(ExactArgmax, "sampled_error", lambda exact: 0.0)
    monkeypatch.setattr("evaluation.argmax.MINIMUM_TOLERANCE", 1e-7)
    weight, bias = model.head.weight.data.clone(), model.head.bias.data.clone()
    model.head.bias.data[[5, 7]] = 1e3  # large logits: float32 errors far above the tolerance
    model.head.weight.data[7] = model.head.weight.data[5]
    found = generate(model, sequences)
    assert found.tolerance > 1e-7
    assert written(found) == plain_greedy(model, sequences)
    model.head.weight.data.copy_(weight)
    model.head.bias.data.copy_(bias)


@pytest.mark.parametrize("calls", [1, 20])
@pytest.mark.parametrize("mixer", MIXERS)
def test_an_error_met_at_any_moment_leaves_nothing_half_done(models, mixer, calls, monkeypatch):
    """In the midst of decoding a batch, too."""
    task, model = models("arithmetic", mixer, 40)
    sequences = task.draw(0, 1, 0, 40)
    monkeypatch.setitem(LARGEST_BATCH, "cpu", 8)
    monkeypatch.setattr(ExactArgmax, "sampled_error", lambda exact: 1e-3)
    after, seen = ExactArgmax.after, []

    def failing(exact, tokens, lengths, rows, logits):
        seen.append(len(rows))
        if len(seen) == calls:
            raise ToleranceTooSmall(2e-3)
        return after(exact, tokens, lengths, rows, logits)

    monkeypatch.setattr(ExactArgmax, "after", failing)
    found = generate(model, sequences)
    assert len(seen) > calls
    assert found.tolerance == max(16 * 2e-3, 2 * 16 * 1e-3)
    assert written(found) == plain_greedy(model, sequences)


@pytest.mark.parametrize("close_calls", [True, False])
@pytest.mark.parametrize("mixer", MIXERS)
def test_what_an_error_too_large_had_decided_is_decided_again(
    models, mixer, close_calls, monkeypatch
):
    """Steps err by far more than calibration, which sees none, could know.  Tokens that the error
    turned fall once a close call meets it, or where none does, once they are read again."""
    task, model = models("arithmetic", mixer, 150)
    sequences = task.draw(0, 1, 0, 120)
    monkeypatch.setattr(generation, "CHECKED_ROWS", 120)
    monkeypatch.setattr("evaluation.argmax.MINIMUM_TOLERANCE", 1e-2 if close_calls else 1e-9)
    monkeypatch.setattr(ExactArgmax, "sampled_error", lambda exact: 0.0)
    step = model.step

    def noisy(tokens, positions, state):
        logits = step(tokens, positions, state)
        sign = 1 - 2 * (torch.arange(logits.shape[1]) % 2)
        return logits + 0.01 * sign

    monkeypatch.setattr(model, "step", noisy)
    found = generate(model, sequences)
    assert written(found) == plain_greedy(model, sequences)
    assert found.tolerance > 1e-2


def forgetful(model, part):
    """Make a layer's state of ``model`` worthless in `prefill` or `step`."""
    mixer = model.blocks[0].mixer
    if part == "step":
        mixer.step = lambda x, positions, state: torch.zeros_like(x)
    else:
        prefill = mixer.prefill

        def prefill_of_zeros(x, lengths):
            mixed, state = prefill(x, lengths)
            for held in state.tensors.values():
                held.zero_()
            return mixed, state

        mixer.prefill = prefill_of_zeros


@pytest.mark.parametrize("close_calls", [True, False])
@pytest.mark.parametrize("part", ["step", "prefill"])
@pytest.mark.parametrize("mixer", ["standard", "sparse", "linear"])
def test_a_false_step_is_refused_not_measured(mixer, part, close_calls, monkeypatch):
    task = TASKS["arithmetic"]()
    model = small_model(task, mixer)
    with torch.no_grad():
        model.head.weight.mul_(30)
    if not close_calls:
        monkeypatch.setattr("evaluation.argmax.SAFETY", 0.0)
        monkeypatch.setattr("evaluation.argmax.MINIMUM_TOLERANCE", 1e-9)
    forgetful(model, part)
    with pytest.raises(RunError, match="`step` does not continue what `forward` computes"):
        evaluate(model, task, task.draw(0, 1, 0, 24))
