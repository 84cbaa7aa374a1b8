"""The LSTM's equations, a token at a time."""

import torch
from torch import Tensor

from models.lstm import LSTM


def mix(mixer: LSTM, x: Tensor) -> Tensor:
    own = dict(mixer.lstm.named_parameters())
    h = c = x.new_zeros(len(x), mixer.dim)
    rows = []
    for t in range(x.shape[1]):
        gates = x[:, t] @ own["weight_ih_l0"].T + own["bias_ih_l0"]
        gates = gates + h @ own["weight_hh_l0"].T + own["bias_hh_l0"]
        i, f, g, o = gates.chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        rows.append(h)
    return torch.stack(rows, dim=1)
