"""What exact evaluation asks of a model: that it runs in float64, and that it is causal."""

from __future__ import annotations

import copy
from typing import cast

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from errors import UserError
from models.mixer import Mixer
from models.transformer import Transformer

PROBE_TOKENS = 8
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
    """Run the mixer of every layer once in float64, on a few random tokens.

    Raises UserError naming the mixer if that fails or if something on the way is of a lower
    precision; the line says that the mixer must define `reference`.
    """
    for block in model.blocks:
        exact = copy.deepcopy(block.mixer).reference().double().eval()
        parameter = next(model.parameters())
        shape = (1, min(PROBE_TOKENS, model.max_len), model.dim)
        x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        try:
            with torch.no_grad(), _NoRounding():
                output = exact(x.to(parameter.device))
        except Exception as error:
            reason = f"{type(error).__name__}: {str(error).strip().split(chr(10))[0][:120]}"
        else:
            if output.dtype == torch.float64:
                continue
            reason = f"it returns {output.dtype}"
        raise UserError(
            f"mixer {type(block.mixer).__name__} does not run in float64, which exact evaluation "
            f"needs ({reason}); define `reference()`, a module of the same parameters that does"
        )


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
