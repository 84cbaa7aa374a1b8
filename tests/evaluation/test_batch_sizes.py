"""The memory limit changes the batch size but not the results."""

import pytest
import torch
from small_models import MIXERS, plain_greedy, prepared, written

from evaluation.argmax import ExactArgmax, megabytes
from evaluation.generate import generate
from models.transformer import Transformer


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
    bytes_per_token = 4 * (16 * model.dim + 4 * len(task.vocabulary))
    at_targets, prefill = ExactArgmax.at_targets, model.prefill
    certified, generated = [], []

    def noting(exact, batch, until_mistake):
        certified.append(batch.inputs.shape)
        return at_targets(exact, batch, until_mistake)

    def noting_too(tokens, lengths):
        generated.append(len(lengths))
        return prefill(tokens, lengths)

    monkeypatch.setattr(ExactArgmax, "at_targets", noting)
    monkeypatch.setattr(model, "prefill", noting_too)
    assert written(generate(model, sequences, 0.1)) == expected
    assert sum(rows for rows, _ in certified) >= count and generated
    assert max(rows * width for rows, width in certified) * bytes_per_token < 0.1 * 2**20
    assert 2 * max(generated) * model.state_bytes(task.max_len) < 0.1 * 2**20


@pytest.mark.parametrize("mixer", MIXERS)
def test_batches_that_do_not_fit_are_halved(mixer, monkeypatch):
    task, model = prepared("arithmetic", mixer, 40)
    sequences = task.draw(0, 1, 0, 60)
    expected, too_large = plain_greedy(model, sequences), []

    def small(method):
        def called(self, tokens, *arguments):
            if tokens.shape[0] > 5:
                too_large.append(len(tokens))
                raise torch.OutOfMemoryError("too much")
            return method(self, tokens, *arguments)

        return called

    for name in ("prefill", "step", "hidden"):
        monkeypatch.setattr(Transformer, name, small(getattr(Transformer, name)))
    assert written(generate(model, sequences)) == expected
    assert len(too_large) > 1


def test_a_sequence_that_does_not_fit_is_an_error(monkeypatch):
    def full(*arguments):
        raise torch.OutOfMemoryError("too much")

    task, model = prepared("arithmetic", "standard", 40)
    monkeypatch.setattr(ExactArgmax, "sampled_error", lambda exact: 1e-6)
    monkeypatch.setattr(Transformer, "hidden", full)
    with pytest.raises(torch.OutOfMemoryError):
        generate(model, task.draw(0, 1, 0, 60))
