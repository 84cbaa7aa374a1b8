"""What exact evaluation asks of a model: that it runs in float64, and that it is causal."""

from __future__ import annotations

import copy
import traceback
from typing import cast

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from common import UserError
from models.mixer import Mixer
from models.transformer import Transformer

PROBE_TOKENS = 8
PROBE_ROWS = 2
CAUSAL_TOLERANCE = 1e-3  # of the largest output: far above what float32 rounds


def exact_copy(model: Transformer) -> Transformer:
    """A copy in float64 for full forward passes, in evaluation mode, mixers by their references.

    `prefill` and `step` of the copy are those of the references, which need not have any.
    """
    exact = copy.deepcopy(model)
    for block in exact.blocks:
        block.mixer = cast(Mixer, block.mixer.reference())
    return exact.double().eval()


def require_exact(model: Transformer) -> None:
    """Run the mixer of every layer once on a few random tokens: as it is, then in float64.

    Raises UserError naming the mixer and the shape of its input if it fails as it is, or returns
    another shape. If float64 alone fails, or something on the way is of a lower precision, the
    line says that the mixer must define `reference`.
    """
    for block in model.blocks:
        shape = (PROBE_ROWS, min(PROBE_TOKENS, model.max_len), model.dim)
        x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        parameter = next(model.parameters())
        _require_forward(block.mixer, x.to(parameter))
        if reason := _why_not_float64(block.mixer, x.to(parameter.device)):
            raise UserError(
                f"mixer {type(block.mixer).__name__} does not run in float64, which exact "
                f"evaluation needs ({reason}); define `reference()`, a module of the same "
                "parameters that does"
            )


@torch.no_grad()
def _require_forward(mixer: Mixer, x: Tensor) -> None:
    """Raise UserError unless `mixer` makes a tensor of the same shape of x (B, T, D)."""
    name, shape = type(mixer).__name__, tuple(x.shape)
    try:
        output: object = copy.deepcopy(mixer).eval()(x)
    except Exception as error:
        if isinstance(error, NotImplementedError) and not str(error):  # torch's has a text
            method = traceback.extract_tb(error.__traceback__)[-1].name
            raise UserError(
                f"mixer {name}: its `{method}` is not written yet; models/mixer.py says what the "
                "methods of a mixer take and return"
            ) from error
        raise UserError(f"mixer {name} fails on input {shape}: {_in_short(error)}") from error
    if wrong := _unlike(x, output):
        raise UserError(
            f"mixer {name} fails on input {shape}: it returns {wrong}; `forward` must return a "
            "tensor of its input's shape, (B, T, D)"
        )


@torch.no_grad()
def _why_not_float64(mixer: Mixer, x: Tensor) -> str | None:
    """Say why `mixer` does not make float64 of x (B, T, D) in float64, None where it does."""
    exact = copy.deepcopy(mixer).reference().double().eval()
    try:
        with _NoRounding():
            output = exact(x)
    except Exception as error:
        return _in_short(error)
    if wrong := _unlike(x, output):
        return f"it returns {wrong} for input {tuple(x.shape)}"
    return None if output.dtype == torch.float64 else f"it returns {output.dtype}"


def _unlike(x: Tensor, output: object) -> str | None:
    """What `output` is where it is no tensor of the shape of x, None where it is."""
    if not isinstance(output, Tensor):
        return f"a {type(output).__name__}"
    return None if output.shape == x.shape else str(tuple(output.shape))


def _in_short(error: Exception) -> str:
    """The kind of an error and the first line of what it says."""
    said = str(error).strip().split("\n")[0][:120]
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


@torch.no_grad()
def require_causal(model: Transformer) -> None:
    """Change the later ones of a few random tokens at every mixer: nothing earlier may move.

    One parallel pass over the right answers stands for generation only where no token sees those
    after it. Raises UserError naming the mixer that looks ahead.
    """
    parameter = next(model.parameters())
    shape = (1, min(PROBE_TOKENS, model.max_len), model.dim)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(parameter)  # (1, T, D)
    for block in model.blocks:
        mixer = copy.deepcopy(block.mixer).eval()
        whole = mixer(x)
        tolerance = CAUSAL_TOLERANCE * float(whole.abs().max())
        for cut in range(1, x.shape[1]):
            changed = torch.cat((x[:, :cut], -x[:, cut:]), 1)
            moved = (mixer(changed)[:, :cut] - whole[:, :cut]).abs().max()
            if moved > tolerance:
                raise UserError(
                    f"mixer {type(mixer).__name__} looks ahead: what it returns for token {cut} "
                    f"changes with the tokens after it; token t may depend on x[:, : t + 1] alone"
                )


class _NoRounding(TorchDispatchMode):
    """Refuses operators that make lower precision of float64."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        output = func(*args, **(kwargs or {}))
        if torch.float64 in _float_types((args, kwargs)):
            lower = _float_types(output) - {torch.float64}
            if lower:
                # No TypeError: Python would take `x += y` for unsupported and try `x = x + y`.
                raise ArithmeticError(f"{func} rounds to {lower.pop()}")
        return output


def _float_types(values: object) -> set[torch.dtype]:
    tensors = [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]
    return {t.dtype for t in tensors if t.is_floating_point()}
