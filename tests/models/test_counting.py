"""The default FLOP count against counts by hand."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from common import UserError
from models.mixer import Mixer

D, L = 16, 9


class Written(Mixer):
    """A mixer whose forward pass is given."""

    def __init__(self, forward, dim=D, **modules):
        super().__init__(dim, 2, 40)
        self.given = forward
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, x):
        return self.given(self, x)


def flops(forward, length=L, **modules):
    return Written(forward, **modules).flops(length)


def test_running_mean_of_the_readme():
    """An addition and a division an element, a multiplication by the gain, a linear layer."""

    def forward(self, x):
        count = torch.arange(1, x.shape[1] + 1, device=x.device)[:, None]
        return 2.0 * self.out(x.cumsum(1) / count)

    assert flops(forward, out=nn.Linear(D, D)) == {
        "linear/mixer": 2 * D * D * L,
        "mixing/reductions": L * D,
        "mixing/elementwise": 2 * L * D,
    }


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 40))
def test_recurrence_in_a_python_loop(length):
    """s <- a s + k v^T costs 3 an element of the state, its read-out a product."""

    def forward(self, x):
        k = v = q = x
        state = x.new_zeros(x.shape[0], D, D)
        outputs = []
        for t in range(x.shape[1]):
            state = 0.9 * state + k[:, t, :, None] * v[:, t, None, :]
            outputs.append((q[:, t, None] @ state)[:, 0])
        return torch.stack(outputs, 1)

    assert flops(forward, length) == {
        "linear/mixer": 0,
        "mixing/elementwise": 3 * D * D * length,
        "mixing/products": 2 * D * D * length,
    }


def test_recurrence_in_place():
    def forward(self, x):
        state, outputs = torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            state.mul_(0.9).add_(x[:, t])
            outputs.append(state.clone())
        return torch.stack(outputs, 1)

    assert flops(forward) == {"linear/mixer": 0, "mixing/elementwise": 2 * D * L}


@pytest.mark.parametrize("left", [True, False])
def test_triangular_solve_of_a_chunk(left):
    """As the chunked delta rule: (I + tril(K K^T)) U = V has D right-hand sides of L unknowns."""

    def forward(self, x):
        matrix = (x @ x.mT).tril(-1) + torch.eye(x.shape[1], device=x.device)
        if left:
            return torch.linalg.solve_triangular(matrix, x, upper=False, unitriangular=True)
        return torch.linalg.solve_triangular(matrix.mT, x.mT, upper=True, left=False).mT

    assert flops(forward) == {
        "linear/mixer": 0,
        "mixing/products": 2 * L * L * D,
        "mixing/elementwise": L * L,
        "mixing/solves": L**2 * D,
    }


def test_softmax_attention_written_out():
    """Two products, a scaling and five operations of the softmax for every pair; masks are free."""

    def forward(self, x):
        scores = x @ x.mT / D**0.5
        past = torch.ones_like(scores).tril().bool()
        return scores.masked_fill(~past, -torch.inf).softmax(-1) @ x

    assert flops(forward) == {
        "linear/mixer": 0,
        "mixing/products": 2 * 2 * L * L * D,
        "mixing/elementwise": 6 * L * L,
    }


def test_softmax_by_its_parts_costs_what_softmax_costs():
    def parts(self, x):
        weights = (x - x.amax(-1, keepdim=True)).exp()
        return weights / weights.sum(-1, keepdim=True)

    whole = flops(lambda self, x: x.softmax(-1))
    assert sum(flops(parts).values()) == sum(whole.values()) == 5 * L * D


def test_fused_attention_counts_its_products():
    terms = flops(lambda self, x: F.scaled_dot_product_attention(x, x, x, is_causal=True))
    assert terms["mixing/products"] == 2 * 2 * L * L * D


def test_fft_convolution():
    """Two real transforms forth, one back, and a complex product, two FLOPs an element."""
    points = 32

    def forward(self, x):
        signal = torch.fft.rfft(x, n=points, dim=1)
        kernel = torch.fft.rfft(self.kernel.weight, n=points, dim=0)
        return torch.fft.irfft(signal * kernel, n=points, dim=1)[:, : x.shape[1]]

    terms = flops(forward, kernel=nn.Embedding(40, D))
    transform = 5 * points * math.log2(points) * D / 2
    assert terms == {
        "linear/mixer": 0,
        "mixing/transforms": 3 * transform,
        "mixing/elementwise": 2 * (points // 2 + 1) * D,
    }


def test_depthwise_convolution():
    def forward(self, x):
        return self.conv(F.pad(x.mT, (3, 0))).mT

    conv = nn.Conv1d(D, D, 4, groups=D, bias=False)
    assert flops(forward, conv=conv) == {"linear/mixer": 0, "mixing/products": 2 * 4 * D * L}


@pytest.mark.parametrize(
    ("scan", "reductions"),
    [
        (lambda x: x.cumsum(1), 1),
        (lambda x: x.logcumsumexp(1), 1),
        (lambda x: x.cummax(1).values, 1),
        (lambda x: x.cumprod(1), 1),
        (lambda x: x + x.sum(1, keepdim=True), 1),
        (lambda x: x + x.amax(-1, keepdim=True), 1),
        (lambda x: x + x.topk(2).values[..., :1], 1),
    ],
)
def test_scans_and_reductions_are_not_free(scan, reductions):
    assert flops(lambda self, x: scan(x))["mixing/reductions"] == reductions * L * D


def test_what_is_added_to_a_tensor_counts_not_the_tensor():
    """All L tokens into one row, or none of it: L * D sums either way."""

    def add(self, x):
        first = torch.zeros(x.shape[1], dtype=torch.int64, device=x.device)
        return torch.zeros_like(x[:, :1]).index_add(1, first, x)

    def scatter(self, x):
        first = torch.zeros(x.shape, dtype=torch.int64, device=x.device)
        return torch.zeros_like(x[:, :1]).scatter_add(1, first, x)

    assert [flops(f)["mixing/reductions"] for f in (add, scatter)] == [L * D, L * D]


def test_a_layer_counts_as_often_as_it_is_applied_and_its_bias_is_left_out():
    def forward(self, x):
        for _ in range(3):
            x = self.layer(x)
        return x

    assert flops(forward, layer=nn.Linear(D, D)) == {"linear/mixer": 3 * 2 * D * D * L}


def test_moving_data_is_free():
    def forward(self, x):
        x = torch.cat((x[:, 1:], x[:, :1]), 1).flip(1).roll(1, 1)
        x = F.pad(x, (0, 0, 1, 0))[:, :-1].transpose(1, 2).contiguous().mT
        return x.gather(1, torch.zeros_like(x, dtype=torch.long)).clone().to(torch.float64)

    assert flops(forward) == {"linear/mixer": 0}


def test_counting_leaves_the_mixer_as_it_is():
    mixer = Written(lambda self, x: self.layer(x), layer=nn.Linear(D, D)).train()
    before = [p.clone() for p in mixer.parameters()]
    mixer.flops(L)
    assert mixer.training and not mixer.layer._forward_hooks
    assert all(torch.equal(a, b) for a, b in zip(before, mixer.parameters(), strict=True))


@torch.library.custom_op("cotcost_tests::halve", mutates_args=())
def halve(x: torch.Tensor) -> torch.Tensor:
    return x / 2


@halve.register_fake
def _(x):
    return torch.empty_like(x)


def refusal(forward):
    with pytest.raises(UserError) as refused:
        flops(forward)
    (line,) = str(refused.value).splitlines()
    assert line.startswith("mixer Written") and "define `flops(length)`" in line
    return line


def test_an_operator_of_unknown_cost_is_named():
    assert "operator cotcost_tests.halve" in refusal(lambda self, x: halve(x))
    assert "operator aten.linalg_inv_ex" in refusal(lambda self, x: torch.linalg.inv(x @ x.mT) @ x)


def test_an_operator_of_higher_order_is_named():
    def forward(self, x):
        one, other = (lambda y: (y + 1,)), (lambda y: (y - 1,))
        return torch.ops.higher_order.cond(torch.tensor(True), one, other, (x,))[0]

    assert "operator cond" in refusal(forward)


def test_a_mixer_that_does_not_run_on_the_meta_device_is_told_to_define_flops():
    line = refusal(lambda self, x: x * float(x.sum()))
    assert "does not run on the meta device" in line and "RuntimeError" in line
