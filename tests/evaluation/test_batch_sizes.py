"""The memory limit changes the batch size but not the results."""

import pytest
import torch
from small_models import prepared, written

from evaluation.generate import generate, megabytes
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
