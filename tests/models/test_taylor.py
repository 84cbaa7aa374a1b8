"""The Taylor series of softmax: its chunks, large scores, small ones."""

import pytest
import torch
from comparing import assert_close, compare
from torch.nn import functional as F

from models import taylor
from models.taylor import TaylorAttention


def mixer(max_len, **own):
    torch.manual_seed(0)
    return TaylorAttention(16, 2, max_len, **{"feature_dim": 4, **own})


@pytest.mark.parametrize("length", [1, 8, 9, 40])
@pytest.mark.parametrize("position", ["none", "rope"])
def test_chunks_carry_the_sums(monkeypatch, length, position):
    monkeypatch.setattr(taylor, "CHUNK_SIZE", 8)
    x = torch.randn(2, length, 16, dtype=torch.float64)
    compare(mixer(40, position=position).double(), x, 1e-12 if position == "none" else 1e-6)


@pytest.mark.parametrize("size", [1.0, 30.0])
def test_chunks_in_float32(monkeypatch, size):
    """Weights are at least 1/2, whatever the scores: sums over features keep their digits."""
    monkeypatch.setattr(taylor, "CHUNK_SIZE", 8)
    own, x = mixer(40), size * torch.randn(2, 40, 16)
    assert_close([own(x)], [own.double()(x.double())], 1e-5)


def test_small_scores_give_softmax():
    """The series is exp(s) up to s³ / 6."""
    own = mixer(20, feature_dim=8).double()
    q, k, v = (0.05 * torch.randn(1, 2, 20, 8, dtype=torch.float64) for _ in range(3))
    softmax = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert (own.attend(q, k, v) - softmax).abs().max() < 1e-6
