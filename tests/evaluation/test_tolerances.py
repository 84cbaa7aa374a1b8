"""Generation restarts if the tolerance was too small; a wrong `step` is rejected."""

import pytest
import torch
from small_models import MIXERS, TASKS, plain_greedy, prepared, small_model, written

from common import RunError
from evaluation import generate as generation
from evaluation.argmax import LARGEST_BATCH, ExactArgmax, ToleranceTooSmall
from evaluation.generate import generate
from evaluation.judge import evaluate


@pytest.mark.parametrize("calls", [1, 20])
@pytest.mark.parametrize("mixer", MIXERS)
def test_generation_restarts_after_an_error_at_any_call(mixer, calls, monkeypatch):
    task, model = prepared("arithmetic", mixer, 40)
    sequences = task.draw(0, 1, 0, 40)
    monkeypatch.setitem(LARGEST_BATCH, "cpu", 8)
    monkeypatch.setattr(ExactArgmax, "sampled_error", lambda exact: 1e-3)
    after, seen = ExactArgmax.next_token, []

    def failing(exact, tokens, lengths, rows, logits):
        seen.append(len(rows))
        if len(seen) == calls:
            raise ToleranceTooSmall(2e-3)
        return after(exact, tokens, lengths, rows, logits)

    monkeypatch.setattr(ExactArgmax, "next_token", failing)
    found = generate(model, sequences)
    assert len(seen) > calls
    assert found.tolerance == max(16 * 2e-3, 2 * 16 * 1e-3)
    assert written(found) == plain_greedy(model, sequences)


@pytest.mark.parametrize("close_calls", [True, False])
@pytest.mark.parametrize("mixer", MIXERS)
def test_tokens_affected_by_large_errors_are_decided_again(mixer, close_calls, monkeypatch):
    """Errors of `step` far exceed the calibrated tolerance, since calibration runs no steps. They
    are detected at a close call or, without close calls, when the tokens are read again."""
    task, model = prepared("arithmetic", mixer, 150)
    sequences = task.draw(0, 1, 0, 120)
    monkeypatch.setattr(generation, "CHECKED_ROWS", 120)
    monkeypatch.setattr("evaluation.argmax.MINIMUM_TOLERANCE", 1e-2 if close_calls else 1e-9)
    monkeypatch.setattr(ExactArgmax, "sampled_error", lambda exact: 0.0)
    step = model.step

    def noisy(tokens, positions, state):
        logits = step(tokens, positions, state)
        return logits + 0.01 * (-1) ** torch.arange(logits.shape[1])

    monkeypatch.setattr(model, "step", noisy)
    found = generate(model, sequences)
    assert written(found) == plain_greedy(model, sequences)
    assert found.tolerance > 1e-2


def forgetful(model, part):
    """Break the first layer of `model`: `prefill` zeroes its state or `step` returns zeros."""
    mixer = model.blocks[0].mixer
    prefill = mixer.prefill

    def prefill_of_zeros(x, lengths):
        mixed, state = prefill(x, lengths)
        for held in state.tensors.values():
            held.zero_()
        return mixed, state

    if part == "step":
        mixer.step = lambda x, positions, state: torch.zeros_like(x)
    else:
        mixer.prefill = prefill_of_zeros


@pytest.mark.parametrize("close_calls", [True, False])
@pytest.mark.parametrize("part", ["step", "prefill"])
@pytest.mark.parametrize("mixer", ["standard", "sparse", "linear"])
def test_a_wrong_step_is_rejected(mixer, part, close_calls, monkeypatch):
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
