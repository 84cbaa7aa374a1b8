"""The cores against the parallel forms of their papers, and under bfloat16.

flash-linear-attention's naive forms (fla/ops/gla, simple_gla, retention, based: naive.py) state the
same sums; here they are written from the papers, in float64, with every pair of tokens at once.
There q is divided by √K first, which the norm of the output takes away again.
"""

import pytest
import torch
from configured import mixers_of
from mixer_cases import assert_close
from torch.nn import functional as F

from models import decayed, delta, taylor
from models.decayed import FixedDecay, decayed_sums
from models.taylor import TaylorAttention
from tests.models.reference.decayed import recurrence as decayed_recurrence
from tests.models.reference.delta import recurrence as delta_recurrence

LENGTH, WIDTH = 100, 8  # more than three chunks


def gated_linear_attention(q, k, v, log_decay):
    """((Q ⊙ B) (K / B)ᵀ ⊙ M) V with B_t = Π_{s<=t} α_s (Yang et al. 2023, section 4)."""
    b = log_decay.cumsum(2).exp()
    return ((q * b) @ (k / b).mT).tril() @ v


def state_space_duality(q, k, v, log_decay):
    """(L ⊙ C Bᵀ) X, L_ij = a_i ... a_{j+1} for i >= j, else 0 (Dao and Gu 2024, section 3)."""
    length = q.shape[2]
    decay = torch.zeros(*q.shape[:2], length, length, dtype=q.dtype)
    for j in range(length):
        behind = log_decay[:, :, j + 1 :, 0].cumsum(2)
        decay[:, :, j, j], decay[:, :, j + 1 :, j] = 1, behind.exp()
    return (decay * (q @ k.mT)) @ v


def retention(q, k, v, gamma):
    """(Q Kᵀ ⊙ D) V with D_nm = γ^(n-m) for n >= m, else 0 (Sun et al. 2023, eq. 5)."""
    n = torch.arange(q.shape[2], dtype=q.dtype)
    decay = (gamma[:, None, None] ** (n[:, None] - n).clamp(min=0)).tril()  # (H, T, T)
    return (q @ k.mT * decay) @ v


def based(q, k, v):
    """Σ_{j<=i} w_ij v_j / Σ w_ij, w = 1 + s + s² / 2 (Arora et al. 2024, section 4)."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    weights = (1 + scores + scores**2 / 2).tril()
    return weights @ v / weights.sum(-1, keepdim=True)


def random_heads(heads=2):
    return [torch.randn(2, heads, LENGTH, WIDTH) for _ in range(3)]


def doubles(*tensors):
    return [x.double() for x in tensors]


def test_gla():
    given = [*random_heads(), F.logsigmoid(torch.randn(2, 2, LENGTH, WIDTH)) / 16]
    assert_close([decayed_sums(*given)[0]], [gated_linear_attention(*doubles(*given))], 1e-5)


@pytest.mark.parametrize("dt", [0.01, 0.1, 10.0])
def test_simple_gla_and_ssd(dt):
    """From decays that keep nearly all to such that forget all."""
    given = [*random_heads(), -8.5 * dt * torch.rand(2, 2, LENGTH, 1)]
    assert_close([decayed_sums(*given)[0]], [state_space_duality(*doubles(*given))], 1e-5)


def test_retention():
    q, k, v = random_heads(heads=4)
    log_decay = FixedDecay(32, 4)(torch.zeros(2, LENGTH, 32))[0].transpose(1, 2)
    gamma = 1 - 2.0 ** -torch.arange(5, 9, dtype=torch.float64)
    found = decayed_sums(q, k, v, log_decay)[0]
    assert_close([found], [retention(*doubles(q, k, v), gamma)], 1e-5)


def test_based(monkeypatch):
    monkeypatch.setattr(taylor, "CHUNK_SIZE", 32)
    mixer = TaylorAttention(2 * WIDTH, 2, LENGTH, feature_dim=WIDTH)
    given = random_heads()
    assert_close([mixer.attend(*given)], [based(*doubles(*given))], 1e-5)


def recorded(monkeypatch, module, name):
    """The calls of a core from `module`: its inputs and its first output, while a mixer runs."""
    calls, core = [], getattr(module, name)

    def record(*given):
        y, state = core(*given)
        calls.append((given, y))
        return y, state

    monkeypatch.setattr(module, name, record)
    return calls


def under_bf16(name):
    """The model's first mixer, run under autocast to bfloat16."""
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        return mixers_of(name, max_len=LENGTH)[0](torch.randn(2, LENGTH, 16))


@pytest.mark.parametrize("name", ["retnet", "gla", "mamba2"])
def test_bf16_ends_before_the_decayed_sums(name, monkeypatch):
    """q and k are rounded to bfloat16; what is made of them is as exact as float32."""
    calls = recorded(monkeypatch, decayed, "decayed_sums")
    assert under_bf16(name).dtype == torch.bfloat16
    [((q, k, v, log_decay), y)] = calls
    assert torch.equal(q, q.bfloat16().float()) and torch.equal(k, k.bfloat16().float())
    assert_close([y], [decayed_recurrence(*doubles(q, k, v, log_decay))], 1e-5)


@pytest.mark.parametrize("name", ["delta_net", "gated_delta_net", "delta_product"])
def test_bf16_ends_before_the_delta_rule(name, monkeypatch):
    """v is rounded to bfloat16; what is made of q, k and v is as exact as float32."""
    calls = recorded(monkeypatch, delta, "delta_rule")
    assert under_bf16(name).dtype == torch.bfloat16
    [((q, k, v, beta, log_decay, _), y)] = calls
    assert torch.equal(v, v.bfloat16().float())
    assert_close([k.square().sum(-1)], [torch.ones(k.shape[:-1])], 1e-6)
    kept = torch.ones_like(q[..., 0]) if log_decay is None else log_decay.double().exp()
    assert_close([y], [delta_recurrence(*doubles(q, k, v, beta, kept))], 1e-5)
