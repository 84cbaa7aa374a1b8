"""Checks of mixers: float64 copies, causality, consistency of `step` and `forward`."""

import functools

import pytest
import torch
from comparing import transformer
from torch import nn

from common import UserError
from models.checks import exact_copy, require_causal, require_exact, require_same_step
from models.last_lines import LastLines
from models.linear import LinearAttention
from models.mixer import GenerationState, Mixer
from models.standard import StandardAttention


class Kernel(Mixer):
    """A running sum whose kernel only supports float32, like many Triton kernels."""

    def __init__(self, dim, num_heads, max_len, dropout=0.0, position="none"):
        super().__init__(dim, num_heads, max_len, dropout, position)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        if x.dtype == torch.float64:
            raise RuntimeError("kernel: float64 is not supported\nby this architecture")
        return self.out(x.cumsum(1))


def kernel(name, forward, **own):
    return type(name, (Kernel,), {"forward": forward, **own})


Plain = kernel("Plain", lambda self, x: self.out(x.cumsum(1)))


class WithReference(Kernel):
    def reference(self):
        plain = Plain(8, 2, 12)
        plain.out = self.out
        return plain


@torch.no_grad()
def test_exact_copy_uses_the_reference_with_the_same_parameters():
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
    require_exact(model)
    assert all(isinstance(block.mixer, WithReference) for block in model.blocks)
    assert next(model.parameters()).dtype == torch.float32


@pytest.mark.parametrize(
    ("forward", "reason"),
    [
        (Kernel.forward, "kernel: float64 is not supported"),
        (lambda self, x: self.out(x.float().cumsum(1).to(x.dtype)), "rounds to torch.float32"),
        (lambda self, x: self.out(torch.zeros(x.shape).add_(x.cumsum(1)).to(x.dtype)),
         "rounds to torch.float32"),
        (lambda self, x: torch.ones(x.shape, dtype=torch.float32), "it returns torch.float32"),
    ],
)  # fmt: skip
def test_a_mixer_that_is_not_exact_is_told_to_define_reference(forward, reason):
    with pytest.raises(UserError) as refused:
        require_exact(transformer(kernel("Rounds", forward)))
    line = str(refused.value)
    assert line.startswith("mixer Rounds does not run in float64")
    assert reason in line and "define `reference()`" in line


@pytest.mark.parametrize(
    ("forward", "found"),
    [
        (lambda self, x: x[..., :3], r"\(2, 12, 3\)"),
        (lambda self, x: x[:1], r"\(1, 12, 8\)"),  # correct for a single sequence
        (lambda self, x: (self.out(x), None), "tuple"),
    ],
)
def test_a_wrong_output_shape_is_reported(forward, found):
    with pytest.raises(UserError, match=rf"mixer Shapes: `forward` returns {found}"):
        require_exact(transformer(kernel("Shapes", forward)))


def test_a_bug_in_forward_is_raised_unchanged():
    with pytest.raises(NotImplementedError):
        require_exact(transformer(Mixer))


def leaks(at):
    """Token `at` sees the next one."""

    def forward(self, x):
        y = self.out(x.cumsum(1))
        y[:, at : at + 1] += x[:, at + 1 : at + 2].sum(1, keepdim=True)
        return y

    return kernel("Leaks", forward)


def shifts(first):
    """Tokens from `first` on see only the next one, as after a shift in the wrong direction."""

    def forward(self, x):
        return self.out(torch.cat((x[:, :first], x[:, first + 1 :], x[:, -1:]), 1)[:, : x.shape[1]])

    return kernel("Shifts", forward)


@pytest.mark.parametrize("layer", [0, 1])
def test_a_mixer_that_looks_ahead_in_any_layer_is_refused(layer):
    model = transformer(Plain)
    require_causal(model)
    model.blocks[layer].mixer = shifts(0)(8, 2, 12)
    with pytest.raises(UserError, match=r"mixer Shifts looks ahead: .* token 1 change "):
        require_causal(model)


def test_a_leak_at_one_early_token_or_at_all_late_tokens_is_found():
    for mixer, length in ((leaks(5), 256), (shifts(30), 64), (shifts(100), 256)):
        with pytest.raises(UserError, match="looks ahead"):
            require_causal(transformer(mixer, max_len=length))


class ForgetsLines(LastLines):
    def attend_step(self, *given, ends=None, **seen):
        return super().attend_step(*given, **seen)


def test_step_is_checked_at_line_ends():
    require_same_step(transformer(functools.partial(LastLines, longest_lines=(9, 5))))
    with pytest.raises(UserError, match="mixer ForgetsLines: `step` differs"):
        require_same_step(transformer(functools.partial(ForgetsLines, longest_lines=(9, 5))))


class Halved(StandardAttention):
    """Changes the input of `forward` but not that of `step`."""

    def project(self, x):
        return super().project(0.5 * x)


class Forgetful(StandardAttention):
    """Its `prefill` zeroes the state after prompts of more than one token."""

    def prefill(self, x, lengths, **seen):
        y, state = super().prefill(x, lengths, **seen)
        for held in state.tensors.values():
            held.mul_(x.shape[1] == 1)
        return y, state


class ForgetsLate(StandardAttention):
    """Its `step` forgets the state after 30 tokens."""

    def step(self, x, positions, state, **seen):
        if int(positions.max()) > 30:
            for held in state.tensors.values():
                held.zero_()
        return super().step(x, positions, state, **seen)


class Blank(LinearAttention):
    """Its `prefill` returns zeros, with the right state."""

    def prefill(self, x, lengths, **seen):
        return torch.zeros_like(x), super().prefill(x, lengths, **seen)[1]


class Hidden(LinearAttention):
    """Keeps its state outside `GenerationState`."""

    def prefill(self, x, lengths, **seen):
        y, self.state = super().prefill(x, lengths, **seen)
        return y, GenerationState({}, self.state.extent)

    def step(self, x, positions, state, **seen):
        return super().step(x, positions, self.state, **seen)


class IgnoresLengths(LinearAttention):
    """Its `prefill` reads the padding after short prompts too."""

    def prefill(self, x, lengths, **seen):
        return super().prefill(x, torch.full_like(lengths, x.shape[1]), **seen)


@pytest.mark.parametrize("mixer", [Halved, Forgetful, ForgetsLate, Hidden, IgnoresLengths, Blank])
def test_a_prefill_or_step_that_differs_from_forward_is_rejected(mixer):
    method, length = "prefill" if mixer is Blank else "step", 64 if mixer is ForgetsLate else 12
    with pytest.raises(UserError, match=f"{mixer.__name__}: `{method}` differs from `forward`"):
        require_same_step(transformer(mixer, max_len=length))


def test_non_finite_numbers_are_rejected():
    with pytest.raises(UserError, match="mixer Infinite: `forward` returns numbers that are not"):
        require_exact(transformer(kernel("Infinite", lambda self, x: x / 0)))
    broken = kernel("Broken", Plain.forward, step=lambda self, x, *_: x * torch.nan)
    with pytest.raises(UserError, match="mixer Broken: `step` differs"):
        require_same_step(transformer(broken))
