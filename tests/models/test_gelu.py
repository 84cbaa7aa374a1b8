"""The fast GELU against PyTorch's in float64."""

import pytest
import torch
from comparing import with_gradients
from torch.nn import functional as F

from models.transformer import Gelu


@pytest.mark.parametrize("shape", [(1,), (3, 7), (2, 5, 40), (0, 4)])
@pytest.mark.parametrize("size", [0.01, 1.0, 30.0])
def test_value_and_gradient(shape, size):
    """Of columns, too: the axes turned round."""
    drawn, direction = torch.randn(2, *shape)
    for axes in (lambda x: x, lambda x: x.permute(*reversed(range(x.dim())))):
        given = [axes(drawn * size)], axes(direction)
        exact = with_gradients(F.gelu, [given[0][0].double()], given[1])
        for found, wanted in zip(with_gradients(Gelu(), *given), exact, strict=True):
            torch.testing.assert_close(found.double(), wanted, rtol=1e-6, atol=1e-6)


def test_what_is_not_finite():
    x = torch.tensor([torch.nan, torch.inf, 1e30, -1e30], requires_grad=True)
    y = Gelu()(x)
    y.sum().backward()
    assert y[0].isnan() and x.grad[0].isnan()
    assert y[1:].tolist() == [torch.inf, x[2].item(), 0.0]
    assert x.grad[2:].tolist() == [1.0, 0.0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types_and_evaluation_are_pytorchs(dtype):
    x = torch.randn(50, dtype=dtype)
    assert torch.equal(Gelu()(x.requires_grad_()), F.gelu(x))
    x = x.detach().float()
    assert torch.equal(Gelu()(x), F.gelu(x))
