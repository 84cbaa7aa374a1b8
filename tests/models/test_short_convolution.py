"""The short convolution against its sum, token by token; test_every_model.py has whole mixers."""

import pytest
import torch
from comparing import assert_close, with_gradients

from models.attention import ShortConvolution
from tests.models.reference.heads import convolved


@pytest.mark.parametrize("form", ["canon", "silu"])
@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("length", [1, 3, 4, 17])
def test_equals_the_sum(form, width, length):
    module = ShortConvolution(6, form, width)
    x, direction = torch.randn(2, length, 6, dtype=torch.float64), torch.randn(2, length, 6)
    found = with_gradients(module, [x.float()], direction, module.parameters())
    module.double()
    wanted = with_gradients(lambda x: convolved(module, x), [x], direction, module.parameters())
    assert_close(found, wanted, 1e-6)
    assert_close(with_gradients(module, [x], direction, module.parameters()), wanted, 1e-12)


def test_initial_values_are_those_of_pytorchs_convolution():
    kernel = ShortConvolution(4000, "canon", 4).kernel
    assert 0.49 < kernel.abs().max() <= 0.5
    assert kernel.std().item() == pytest.approx(0.5 / 3**0.5, rel=0.03)
