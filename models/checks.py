"""Checks before training: mixers run in float64, are causal, and generate as in `forward`."""

import copy
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from common import UserError
from models.mixer import Mixer, length_mask
from models.transformer import Transformer

PROBE_TOKENS = 256
DENSE_UNTIL, STRIDE = 24, 29  # causality is tested at every token up to 24, then at every 29th
TOLERANCE = 1e-3  # of the largest output: far above float32 rounding


def exact_copy(model: Transformer) -> Transformer:
    """A float64 copy in evaluation mode, with each mixer's `reference`."""
    exact = copy.deepcopy(model)
    for block in exact.blocks:
        block.mixer = block.mixer.reference()
    return exact.double().eval()


@torch.no_grad()
def require_exact(model: Transformer) -> None:
    """Run each layer's mixer on random input, then its reference in float64.

    Raises UserError naming the mixer if it changes the shape, or if float64 fails or an
    intermediate result has lower precision: it must then define `reference`.
    """
    for mixer, x, ends in _probed(model):
        name, found = type(mixer).__name__, mixer(x, **ends)
        if not isinstance(found, Tensor) or found.shape != x.shape:
            shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise UserError(
                f"mixer {name}: `forward` returns {shape} for input {tuple(x.shape)}; it must "
                "return a tensor of its input's shape, (B, T, D)"
            )
        if not found.isfinite().all():
            raise UserError(f"mixer {name}: `forward` returns numbers that are not finite")
        try:
            if not isinstance(mixer.reference(), Mixer):
                raise TypeError("its `reference` is not a Mixer")
            with _NoRounding():
                exact = mixer.reference().double().eval()(x.double(), **ends)
            if exact.shape != x.shape or exact.dtype != torch.float64:
                raise TypeError(f"it returns {exact.dtype} of shape {tuple(exact.shape)}")
        except Exception as error:
            raise UserError(
                f"mixer {name} does not run in float64, which exact evaluation needs ({error}); "
                "define `reference()` to return a mixer of the same parameters that runs in float64"
            ) from error


@torch.no_grad()
def require_causal(model: Transformer) -> None:
    """Raise UserError if a mixer's outputs change when the end of a random input is cut off: a
    parallel pass then cannot replace generation."""
    for mixer, x, ends in _probed(model):
        whole, length = mixer(x, **ends), x.shape[1]
        tolerance = TOLERANCE * float(whole.abs().max())
        first = min(DENSE_UNTIL, length)
        for cut in (*range(1, first), *range(first, length, STRIDE)):
            before = {name: given[:, :cut] for name, given in ends.items()}
            moved = (mixer(x[:, :cut], **before) - whole[:, :cut]).abs().max()
            if not moved <= tolerance:  # or NaN
                raise UserError(
                    f"mixer {type(mixer).__name__} looks ahead: its outputs up to token {cut} "
                    "change with later tokens; token t may depend on x[:, : t + 1] only"
                )


@torch.no_grad()
def require_same_step(model: Transformer) -> None:
    """Raise UserError if a mixer's `prefill` or `step` differs from its `forward`, as where a
    subclass of our attention overrides one of them only, or if its state is not all in
    `GenerationState`."""
    for mixer, x, ends in _probed(model):
        name, whole = type(mixer).__name__, mixer(x, **ends)
        read, rows = max(1, x.shape[1] // 2), torch.arange(len(x), device=x.device)
        allowed = TOLERANCE * whole.abs().max()
        lengths = torch.linspace(read, (read + 1) // 2, len(x), device=x.device).long()  # (B,)
        prompt = {name: given[:, :read] for name, given in ends.items()}
        mixed, state = mixer.prefill(x[:, :read], lengths, **prompt)
        apart = (mixed - whole[:, :read])[length_mask(lengths, read)].abs().max()
        if not apart <= allowed:
            raise UserError(f"mixer {name}: `prefill` differs from `forward`; override it")
        turned = rows.flip(0)  # generation selects rows
        state = state.select(turned, read)
        x, whole, lengths = x[turned], whole[turned], lengths[turned]
        ends = {name: given[turned] for name, given in ends.items()}
        for t in range(x.shape[1] - read):
            at = lengths + t  # (B,)
            own = {name: given[rows, at] for name, given in ends.items()}
            state.extent += 1
            apart = (mixer.step(x[rows, at], at, state, **own) - whole[rows, at]).abs().max()
            if not apart <= allowed:
                raise UserError(
                    f"mixer {name}: `step` differs from `forward` {t} tokens after the prompt; "
                    "override `prefill` and `step`, and keep all state in `GenerationState`"
                )


def _probed(model: Transformer) -> Iterator[tuple[Mixer, Tensor, dict[str, Tensor]]]:
    """A copy of each mixer, in evaluation mode, a random input (B, T, D), and the ends of lines
    (B, T) if it sees them."""
    shape = (2, min(PROBE_TOKENS, model.max_len), model.dim)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    x = x.to(next(model.parameters()))
    marks = torch.arange(shape[1], device=x.device).expand(shape[:2]) % 5 == 3
    for block in model.blocks:
        mixer = copy.deepcopy(block.mixer).eval()
        yield mixer, x, {"ends": marks} if mixer.sees_lines else {}


class _NoRounding(TorchFunctionMode):
    """Refuses operators that turn float64 into a lower precision. Only conversions and
    writes into an argument do so, and both take the tensor as a positional argument."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        y = func(*args, **(kwargs or {}))
        if isinstance(y, Tensor) and y.is_floating_point() and y.dtype != torch.float64:
            for x in args:
                if isinstance(x, Tensor) and x.dtype == torch.float64:
                    # Not a TypeError: after one, Python would try `x + y` for `x += y`.
                    raise ArithmeticError(f"{func} rounds to {y.dtype}")
        return y
