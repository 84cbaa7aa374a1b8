"""The float64 copy of the model, kernels that have none of their own, mixers that look ahead."""

import pytest
import torch
from torch import nn
from toy_mixers import CumulativeMean

from common import UserError
from evaluation.generate import generate
from models.exact import exact_copy, require_causal, require_exact
from models.mixer import Mixer
from models.transformer import Transformer
from tasks.lis import LIS


def transformer(mixer):
    return Transformer(11, 12, 8, 2, 2, mixer)


class Kernel(Mixer):
    """A running mean whose kernel is for float32 alone, as many Triton kernels are."""

    def __init__(self, dim, num_heads, max_len, dropout=0.0, position="none"):
        super().__init__(dim, num_heads, max_len, dropout, position)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        if x.dtype == torch.float64:
            raise RuntimeError("kernel: float64 is not supported\nby this architecture")
        return self.out(x.cumsum(1))


class WithReference(Kernel):
    def reference(self):
        return Sum(self.out)


class Sum(nn.Module):
    """`Kernel` in any type, with its parameters."""

    def __init__(self, out):
        super().__init__()
        self.out = out

    def forward(self, x):
        return self.out(x.cumsum(1))


@torch.no_grad()
def test_exact_copy_takes_the_reference_with_the_same_parameters():
    model = transformer(WithReference)
    for parameter in model.parameters():
        parameter += 0.1 * torch.randn_like(parameter)
    tokens = torch.randint(0, 11, (3, 12))
    exact = exact_copy(model)(tokens)
    assert exact.dtype == torch.float64
    torch.testing.assert_close(model(tokens).double(), exact, rtol=1e-4, atol=1e-5)
    plain = transformer(Plain)
    plain.load_state_dict(model.state_dict())
    assert torch.equal(plain.double()(tokens), exact)
    assert all(isinstance(block.mixer, WithReference) for block in model.blocks)
    assert next(model.parameters()).dtype == torch.float32


class Plain(Kernel):
    def forward(self, x):
        return self.out(x.cumsum(1))


@pytest.mark.parametrize("mixer", [WithReference, Plain, CumulativeMean])
def test_mixers_that_are_exact_pass(mixer):
    require_exact(transformer(mixer))


class RoundsInside(Kernel):
    def forward(self, x):
        return self.out(x.float().cumsum(1).to(x.dtype))


class RoundsItsState(Kernel):
    def forward(self, x):
        state = torch.zeros(x.shape, dtype=torch.float32)
        state += x.cumsum(1)
        return self.out(state.to(x.dtype))


class ReturnsFloat32(Kernel):
    def forward(self, x):
        return torch.ones(x.shape, dtype=torch.float32)


@pytest.mark.parametrize(
    ("mixer", "reason"),
    [
        (Kernel, "kernel: float64 is not supported"),
        (RoundsInside, "rounds to torch.float32"),
        (RoundsItsState, "rounds to torch.float32"),
        (ReturnsFloat32, "it returns torch.float32"),
    ],
)
def test_a_mixer_that_is_not_exact_is_told_to_define_reference(mixer, reason):
    with pytest.raises(UserError) as refused:
        require_exact(transformer(mixer))
    line = str(refused.value)
    assert line.startswith(f"mixer {mixer.__name__} does not run in float64")
    assert reason in line and "define `reference()`" in line


class DropsChannels(Kernel):
    def forward(self, x):
        return x[..., :3]


class ForgetsTheBatch(Kernel):
    """Right for one sequence alone."""

    def forward(self, x):
        return x[:1]


class ReturnsWeightsToo(Kernel):
    def forward(self, x):
        return self.out(x), None


@pytest.mark.parametrize(
    ("mixer", "found"),
    [
        (DropsChannels, r"\(2, 8, 3\)"),
        (ForgetsTheBatch, r"\(1, 8, 8\)"),
        (ReturnsWeightsToo, "tuple"),
    ],
)
def test_another_shape_is_named(mixer, found):
    with pytest.raises(UserError, match=rf"mixer {mixer.__name__}: `forward` returns {found}"):
        require_exact(transformer(mixer))


def test_a_bug_in_forward_is_raised_as_it_is():
    with pytest.raises(NotImplementedError):
        require_exact(transformer(Mixer))


class LooksAhead(Kernel):
    """At the next token, as a shift in the wrong direction does."""

    def forward(self, x):
        return self.out(torch.cat((x[:, 1:], x[:, :1]), 1))


@pytest.mark.parametrize("layer", [0, 1])
def test_a_mixer_that_looks_ahead_is_refused(layer):
    model = transformer(CumulativeMean)
    require_causal(model)
    model.blocks[layer].mixer = LooksAhead(8, 2, 12)
    with pytest.raises(UserError, match=r"mixer LooksAhead looks ahead: .* token 1 changes"):
        require_causal(model)


def test_a_mixer_that_has_learned_to_look_ahead_is_not_measured():
    task = LIS(4)
    model = Transformer(len(task.vocabulary), task.max_len, 8, 1, 2, LooksAhead)
    torch.nn.init.zeros_(model.blocks[0].mixer.out.weight)
    require_causal(model)
    torch.nn.init.eye_(model.blocks[0].mixer.out.weight)
    with pytest.raises(UserError, match="looks ahead"):
        generate(model, task.draw(0, 0, 0, 3))


class RoundsOnDemand(Kernel):
    rounds = False

    def forward(self, x):
        return self.out((x.float() if self.rounds else x).cumsum(1).to(x.dtype))


@pytest.mark.parametrize("layer", [0, 1])
def test_layers_of_one_class_may_differ_in_their_options(layer):
    model = transformer(RoundsOnDemand)
    require_exact(model)
    model.blocks[layer].mixer.rounds = True
    with pytest.raises(UserError, match="rounds to"):
        require_exact(model)
