"""The delta rule written to be believed, for the tests to hold the chunked form against."""

from __future__ import annotations

import torch
from torch import Tensor


def delta_rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor) -> Tensor:
    """Siems et al. (2025), eq. 3, with the gate of Yang, Kautz and Hatamizadeh (2025), eq. 10.

    One sequence and head: q (T, K); k (T, n, K); v (T, n, V); beta (T, n); decay (T,), between 0
    and 1. The state is theirs transposed: token t multiplies it by decay_t, then for each write j
    by the generalised Householder matrix I - β k k^T, and adds β k v^T. Returns y (T, V).
    """
    identity = torch.eye(k.shape[-1], dtype=k.dtype)
    state = torch.zeros(k.shape[-1], v.shape[-1], dtype=k.dtype)
    rows = []
    for t in range(len(q)):
        state = decay[t] * state
        for j in range(k.shape[1]):
            key, value, strength = k[t, j], v[t, j], beta[t, j]
            householder = identity - strength * torch.outer(key, key)
            state = householder @ state + strength * torch.outer(key, value)
        rows.append(state.T @ q[t])
    return torch.stack(rows)
