"""The two controls: a running mean that remembers no order, and an LSTM."""

import torch

from models.lstm import LSTM
from models.running_mean import RunningMean


def test_the_mean_has_no_parameters_and_forgets_order():
    mixer, x = RunningMean(8, 2, 20), torch.randn(2, 20, 8)
    assert not list(mixer.parameters())
    mixed = mixer(x[:, torch.randperm(20)])
    torch.testing.assert_close(mixed[:, -1], x.mean(1))
    assert mixer.flops(20) == {"mixing/mean": 2 * 8 * 20}


def test_an_lstm_starts_by_remembering():
    own = dict(LSTM(64, 2, 20).lstm.named_parameters())
    assert own["bias_ih_l0"].tolist() == [0] * 64 + [1] * 64 + [0] * 128
    assert not own["bias_hh_l0"].any()
    for name in ("weight_ih_l0", "weight_hh_l0"):
        bound = (6 / 128) ** 0.5  # Xavier-uniform, each gate by itself
        assert 0.95 * bound < own[name].abs().max() <= bound
