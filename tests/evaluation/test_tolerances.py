"""A tolerance found too small is raised, and what it had decided wrongly is decided again."""

import pytest
import torch
from small_models import MIXERS, plain_greedy, written

from evaluation import certify, levels, memory
from evaluation.certify import Certifier
from evaluation.decode import Decoder
from evaluation.generation import generate
from evaluation.levels import Levels, ToleranceTooSmall
from evaluation.memory import BatchSizes
from evaluation.transcript import DONE, TO_CERTIFY, Transcript
from training.batches import SequenceTensors

CPU = torch.device("cpu")


def test_a_bfloat16_tolerance_found_too_small_is_raised(models, monkeypatch):
    """An untrained model's leads are small: some lie below even an eighth of the tolerance."""
    task, model = models("arithmetic", "standard", 0)
    sequences = task.draw(0, 1, 0, 60)
    monkeypatch.setattr(levels, "resolve_precision", lambda *arguments: "bfloat16")
    sampled_errors, raise_tolerance, raised = Levels.sampled_errors, Levels.raise_tolerance, []

    def hopeful(self, sequences):
        coarse, single = sampled_errors(self, sequences)
        return coarse / 8, single

    def noting(self, failure):
        raised.append(failure.level)
        raise_tolerance(self, failure)

    monkeypatch.setattr(Levels, "sampled_errors", hopeful)
    monkeypatch.setattr(Levels, "raise_tolerance", noting)
    assert written(generate(model, sequences)) == plain_greedy(model, sequences)
    assert levels.COARSE in raised


def test_a_float32_tolerance_found_too_small_is_raised(models, monkeypatch):
    task, model = models("arithmetic", "standard", 40)
    sequences = task.draw(0, 1, 0, 24)
    monkeypatch.setattr(Levels, "sampled_errors", lambda *arguments: (0.0, 0.0))
    monkeypatch.setattr(levels, "MINIMUM_TOLERANCE", 1e-7)
    weight, bias = model.head.weight.data.clone(), model.head.bias.data.clone()
    model.head.bias.data[[5, 7]] = 1e3  # large logits: float32 errors far above the tolerance
    model.head.weight.data[7] = model.head.weight.data[5]
    generation = generate(model, sequences)
    assert generation.tolerance > 1e-7
    assert written(generation) == plain_greedy(model, sequences)
    model.head.weight.data.copy_(weight)
    model.head.bias.data.copy_(bias)


class Attempt:
    """One run over ``sequences`` with given tolerances, its parts at hand."""

    def __init__(self, model, sequences, memory_mb=0.1):
        self.levels = Levels(model, CPU)
        self.tensors = SequenceTensors(sequences)
        self.transcript = Transcript(self.tensors, model.max_len)
        self.sizes = BatchSizes.within(memory_mb, model, model.max_len, CPU)

    @torch.no_grad()
    def run(self, tolerances):
        self.levels.tolerances = list(tolerances)
        Certifier(self.levels, self.transcript, self.sizes, self.tensors).run(lambda: None)
        Decoder(self.levels, self.transcript, self.sizes).run(lambda: None)
        assert self.transcript.num_done() == len(self.tensors)
        return written(self.transcript)


@pytest.mark.parametrize("level", [levels.COARSE, levels.SINGLE])
@pytest.mark.parametrize("mixer", MIXERS)
def test_a_raised_tolerance_takes_back_only_what_it_would_have_left_open(
    models, mixer, level, monkeypatch
):
    """What stands is what a run with the larger tolerance from the start decides."""
    task, model = models("arithmetic", mixer, 150)
    sequences = task.draw(0, 1, 0, 120)
    monkeypatch.setattr(levels, "resolve_precision", lambda *arguments: "bfloat16")
    monkeypatch.setattr(levels, "SAMPLED_ROWS", (16, 16))
    monkeypatch.setattr(levels, "GUARD", (1 / 2, 1 / 2))
    monkeypatch.setattr(certify, "COARSE_TRIAL_ROWS", 10**6)
    monkeypatch.setattr(memory, "CPU_TOKENS_PER_BATCH", 400)
    attempt = Attempt(model, sequences)
    with torch.no_grad():
        coarse, single = attempt.levels.sampled_errors(attempt.tensors)
    tolerances = [4 * coarse, 16 * single]
    attempt.run(tolerances)
    least_lead, stage = attempt.transcript.least_lead[level], attempt.transcript.stage
    decided = least_lead[least_lead.isfinite()]
    tolerances[level] = float(decided.quantile(0.3))
    attempt.transcript.reopen(tolerances)
    taken_back = int((stage != DONE).sum())
    again = attempt.run(tolerances)
    assert again == Attempt(model, sequences).run(tolerances) == plain_greedy(model, sequences)
    assert taken_back == int((decided < tolerances[level]).sum())
    assert 0 < taken_back < 60
    assert (least_lead >= tolerances[level]).all()


@pytest.mark.parametrize("calls", [1, 5, 20, 40])
@pytest.mark.parametrize("mixer", MIXERS)
def test_an_error_met_at_any_moment_leaves_nothing_half_done(models, mixer, calls, monkeypatch):
    """In the midst of generating a batch, too: its rows go on from where they were."""
    task, model = models("arithmetic", mixer, 40)
    sequences = task.draw(0, 1, 0, 40)
    monkeypatch.setitem(memory.LARGEST_BATCH, "cpu", 8)
    monkeypatch.setattr(Levels, "sampled_errors", lambda *arguments: (0.0, 1e-3))
    next_token, seen = Decoder.next_token, []

    def failing(decoder, rows, logits):
        seen.append(len(rows))
        if len(seen) == calls:
            raise ToleranceTooSmall(levels.SINGLE, 2e-3)
        return next_token(decoder, rows, logits)

    monkeypatch.setattr(Decoder, "next_token", failing)
    generation = generate(model, sequences)
    assert len(seen) > calls
    assert generation.tolerance == 16 * 2e-3
    assert written(generation) == plain_greedy(model, sequences)


@pytest.mark.parametrize("mixer", MIXERS)
def test_what_an_error_too_large_had_decided_is_decided_again(models, mixer, monkeypatch):
    """Steps err by far more than calibration, which sees none, could know.  Tokens that the error
    turned stand until a close call meets it; then they fall, and no sound row is done twice."""
    task, model = models("arithmetic", mixer, 150)
    sequences = task.draw(0, 1, 0, 120)
    monkeypatch.setitem(memory.LARGEST_BATCH, "cpu", 8)
    monkeypatch.setattr(levels, "MINIMUM_TOLERANCE", 1e-2)
    step, certify_rows, reopen = model.step, Certifier.certify, Transcript.reopen
    certified, met = [], []

    def noisy(tokens, positions, state):
        logits = step(tokens, positions, state)
        sign = 1 - 2 * (torch.arange(logits.shape[1]) % 2)
        return logits + 0.01 * sign

    def noting(certifier, rows):
        certified.append(len(rows))
        certify_rows(certifier, rows)

    def noting_too(transcript, tolerances):
        met.append(len(certified))
        reopen(transcript, tolerances)
        assert 0 < len(transcript.waiting(TO_CERTIFY)) < 120

    monkeypatch.setattr(model, "step", noisy)
    monkeypatch.setattr(Certifier, "certify", noting)
    monkeypatch.setattr(Transcript, "reopen", noting_too)
    generation = generate(model, sequences)
    assert written(generation) == plain_greedy(model, sequences)
    again = sum(certified[met[0] :])
    assert sum(certified[: met[0]]) == 120 and 0 < again < 120
