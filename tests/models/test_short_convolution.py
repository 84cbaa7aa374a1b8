"""The short convolution against its sum, token by token, and inside attention-like mixers."""

import functools

import numpy as np
import pytest
import torch
from mixer_cases import Case, assert_close, each, with_gradients
from small_models import held_bytes
from test_generation import FLOAT32, generate
from torch import nn

from common import UserError
from models.attention import ShortConvolution
from models.linear import LinearAttention
from models.packing import Packing
from models.sparse import SparseAttention
from models.standard import StandardAttention
from models.transformer import Transformer

FORMS = ("canon", "silu")
CONVOLVED = [
    Case(f"{build.__name__}-{form}", build, {"convolution": form, "convolution_width": 3})
    for build in (StandardAttention, SparseAttention, LinearAttention)
    for form in FORMS
]


def written_out(x, kernel, form):
    """c_t = Σ_s w_s ⊙ x_{t-s}, one term after another."""
    rows = []
    for t in range(x.shape[1]):
        c = sum(kernel[:, -1 - s] * x[:, t - s] for s in range(kernel.shape[1]) if s <= t)
        rows.append(x[:, t] + c if form == "canon" else c / (1 + (-c).exp()))
    return torch.stack(rows, 1)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("length", [1, 3, 4, 17])
def test_equals_the_sum(form, width, length):
    module = ShortConvolution(6, form, width)
    x, direction = torch.randn(2, length, 6), torch.randn(2, length, 6)

    def fast(x, kernel):
        return torch.func.functional_call(module, {"kernel": kernel}, x)

    found = with_gradients(fast, [x, module.kernel], direction)
    exact = [x.double(), module.kernel.double()]
    wanted = with_gradients(lambda *xs: written_out(*xs, form), exact, direction.double())
    assert_close(found, wanted, 1e-6)
    assert_close(with_gradients(fast, exact, direction), wanted, 1e-12)


@torch.no_grad()
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("width", [1, 2, 4])
def test_a_step_continues_prompts_of_any_length(form, width):
    module = ShortConvolution(6, form, width)
    x, lengths = torch.randn(4, 12, 6), torch.tensor([1, 2, 3, 9])
    whole, rows = module(x), torch.arange(4)
    tensors = module.recent(x, lengths, nn.Identity())
    assert tensors["recent"].nbytes == 4 * module.state_bytes()
    for positions in (lengths, lengths + 1, lengths + 2):
        y = module.step(x[rows, positions], tensors)
        torch.testing.assert_close(y, whole[rows, positions])


def test_packed_sequences_do_not_see_each_other():
    module, packing = ShortConvolution(6, "canon"), Packing(np.array([1, 2, 2, 9]), 4)
    x = torch.randn(packing.size, 6)
    found = module.forward_packed(x, packing)
    for start, end in ((0, 1), (1, 3), (3, 5), (5, 14)):
        torch.testing.assert_close(found[start:end], module(x[None, start:end])[0])


def test_none_is_the_identity_without_parameters_state_or_cost():
    module, x = ShortConvolution(6), torch.randn(2, 5, 6)
    assert module(x) is x and torch.equal(module.step(x[:, 0], {}), x[:, 0])
    assert not list(module.parameters()) and module.state_bytes() == 0
    assert module.recent(x, torch.tensor([5, 5]), nn.Identity()) == module.flops(5) == {}


def test_initial_values_are_those_of_pytorchs_convolution():
    kernel = ShortConvolution(4000, "canon", 4).kernel
    assert 0.49 < kernel.abs().max() <= 0.5
    assert kernel.std().item() == pytest.approx(0.5 / 3**0.5, rel=0.03)


@pytest.mark.parametrize(
    ("own", "message"),
    [({"convolution": "mamba"}, "one of none, canon, silu"), ({"convolution_width": 0}, "width=0")],
)
def test_unknown_forms_are_refused(own, message):
    with pytest.raises(UserError, match=message):
        LinearAttention(8, 2, 12, **own)


@torch.no_grad()
@each(CONVOLVED)
def test_generation_and_state_of_convolved_attention(case):
    model = Transformer(11, 20, 8, 2, 2, functools.partial(case.build, **case.own)).eval()
    tokens, lengths = torch.randint(0, 11, (3, 20)), torch.tensor([1, 2, 9])
    full = model(tokens)
    for ids, positions, logits, state in generate(model, tokens, lengths, turn_every=2):
        torch.testing.assert_close(logits, full[ids, positions], **FLOAT32)
        held = sum(layer.tensors["recent"].nbytes for layer in state)
        assert held == len(ids) * 2 * 4 * 2 * 3 * 8  # layers, bytes, W - 1, q k v, D
    assert sum(held_bytes(layer) for layer in state) == len(ids) * model.state_bytes(20)
    assert model.flops(20)["mixing/convolution"] == 2 * 2 * 3 * (3 * 8) * 20


@each(CONVOLVED)
def test_packed_convolved_attention(case):
    mixer, packing = case.mixer(20).eval(), Packing(np.array([1, 2, 9, 20]), 8)
    x = torch.randn(packing.size, 8)
    found = mixer.forward_packed(x, packing)
    for start, end in ((0, 1), (1, 3), (3, 12), (12, 32)):
        torch.testing.assert_close(found[start:end], mixer(x[None, start:end])[0])


@each(CONVOLVED)
def test_the_kernel_is_no_matrix_of_muons(case):
    assert case.mixer(20).parameter_roles().keys() == {"qkv.weight"}
