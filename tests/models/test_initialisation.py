"""The scale of the token embedding beside the positions."""

import pytest
import torch

from models.initialisation import scale_embedding
from models.standard import StandardAttention
from models.transformer import Transformer


def model(dim, vocab_size=20, position="sinusoidal"):
    return Transformer(vocab_size, 64, dim, 1, 2, StandardAttention, position=position)


def rms(x):
    return x.double().square().mean().sqrt().item()


@pytest.mark.parametrize("vocab_size", [20, 252])
@pytest.mark.parametrize("dim", [16, 64, 512])
def test_the_ratio_of_embedding_to_positions_is_the_same_at_every_width(dim, vocab_size):
    scaled = model(dim, vocab_size)
    before = scaled.embedding.weight.detach().clone()
    scale_embedding(scaled.embedding, 0.8)
    weight = scaled.embedding.weight.detach()
    assert rms(weight) / rms(scaled.sinusoids) == pytest.approx(0.8, rel=1e-5)
    torch.testing.assert_close(weight / weight.abs().max(), before / before.abs().max())


@pytest.mark.parametrize("position", ["rope", "none"])
def test_it_does_not_depend_on_the_kind_of_position(position):
    scaled = model(16, position=position)
    scale_embedding(scaled.embedding, 1.5)
    assert rms(scaled.embedding.weight) / rms(model(16).sinusoids) == pytest.approx(1.5, rel=1e-5)


def test_none_leaves_xaviers_values():
    plain = model(16)
    before = plain.embedding.weight.detach().clone()
    scale_embedding(plain.embedding, None)
    assert torch.equal(plain.embedding.weight, before)
