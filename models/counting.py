"""FLOPs of any module by one forward pass on the meta device, operator by operator.

Conventions: a product of matrices takes 2 per multiply-add, as PyTorch's `FlopCounterMode` counts
it; elementwise arithmetic 1 per output element; reductions and scans 1 per input element; softmax
and LayerNorm what they take written out, 5 and 6; a triangular solve of n unknowns n^2 per
right-hand side; an FFT of n points 5 n log2 n, half of it for real signals (Frigo and Johnson
2005). Views, copies, look-ups, masks, comparisons and whole numbers are free. An operator of
unknown cost is refused, never counted as 0.
"""

from __future__ import annotations

import copy
import functools
import math
from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from common import UserError

FREE = frozenset(
    "_assert_async _local_scalar_dense _reshape_alias _to_copy _unsafe_view alias arange bernoulli "
    "bucketize cat clone constant_pad_nd copy detach embedding empty empty_like empty_permuted "
    "empty_strided eye fill flip full full_like gather im2col index index_copy index_fill "
    "index_put index_select lift_fresh linspace masked_fill masked_scatter new_empty "
    "new_empty_strided new_full new_ones new_zeros ones ones_like promote_types rand rand_like "
    "randint randn randn_like randperm reflection_pad1d repeat repeat_interleave replication_pad1d "
    "resize roll scalar_tensor scatter select_scatter slice_scatter split_with_sizes_copy stack "
    "tril tril_indices triu triu_indices unfold_copy uniform unsafe_split unsafe_split_with_sizes "
    "where zero zeros zeros_like".split()
)
BY_NAME: dict[str, dict[str, int]] = {
    # The argument whose elements are multiplied and added.
    "vector product": {"mv": 0, "dot": 0, "vdot": 0, "addmv": 1},
    # FLOPs per element. Softmax: maximum, difference, exponential, sum, quotient; LayerNorm: mean,
    # variance, difference, quotient, gain, bias.
    "written out": {"_softmax": 5, "_safe_softmax": 5, "_log_softmax": 5, "native_layer_norm": 6},
    "solve": {"linalg_solve_triangular": 1},
    "transform": {"_fft_r2c": 1, "_fft_c2r": 1, "_fft_c2c": 1},
    # Beside those that PyTorch tags.
    "reduction": dict.fromkeys(
        "cummax cummin cumprod cumsum index_add kthvalue logcumsumexp max median min scatter_add "
        "scatter_reduce sort topk trace".split(),
        1,
    ),
}
# Reductions into a tensor that is there: the argument whose elements are added to it.
SCATTERED = {"index_add": 3, "scatter_add": 3, "scatter_reduce": 3}
TERMS = {
    "product": "mixing/products",
    "vector product": "mixing/products",
    "solve": "mixing/solves",
    "transform": "mixing/transforms",
    "reduction": "mixing/reductions",
}


class UnknownCost(Exception):
    """An operator whose cost is not known; its name."""


def forward_flops(module: nn.Module, shape: tuple[int, ...]) -> dict[str, int]:
    """FLOPs of ``module`` on an input of ``shape``, by named terms.

    "linear/mixer" products inside `nn.Linear`, their biases left out; "mixing/products",
    "mixing/elementwise", "mixing/reductions", "mixing/solves", "mixing/transforms" all else, where
    there is any. Raises UserError where the module does not run on the meta device or uses an
    operator of unknown cost; the line says that it must define `flops`.
    """
    name, remedy = type(module).__name__, "define `flops(length)`, its cost as a formula"
    try:
        mode = _Counter()
        moved = copy.deepcopy(module).to("meta").eval()
        for layer in moved.modules():
            if isinstance(layer, nn.Linear):
                layer.register_forward_pre_hook(mode.enter_linear)
                layer.register_forward_hook(mode.leave_linear)
        with torch.no_grad(), mode:
            moved(torch.empty(shape, device="meta"))
    except UnknownCost as unknown:
        raise UserError(
            f"mixer {name}: the cost of operator {unknown} is unknown; {remedy}"
        ) from None
    except Exception as error:
        reason = str(error).strip().split("\n")[0][:120]
        raise UserError(
            f"mixer {name} does not run on the meta device, where FLOPs are counted "
            f"({type(error).__name__}: {reason}); {remedy}"
        ) from None
    return {"linear/mixer": 0} | {term: flops for term, flops in mode.terms.items() if flops}


class _Counter(TorchDispatchMode):
    """Adds up what every operator costs."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.terms: Counter[str] = Counter()
        self.linear_depth = 0

    def enter_linear(self, *_: Any) -> None:
        self.linear_depth += 1

    def leave_linear(self, *_: Any) -> None:
        self.linear_depth -= 1

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        kind = _kind(func)
        if kind == "unknown":
            with self:
                parts = func.decompose(*args, **kwargs) if _is_operator(func) else NotImplemented
            if parts is NotImplemented:
                raise UnknownCost(str(func))
            return parts
        output = func(*args, **kwargs)
        flops = _cost(func, args, kwargs, output)
        if not self.linear_depth:
            self.terms[TERMS.get(kind, "mixing/elementwise")] += flops
        elif TERMS.get(kind) == "mixing/products":
            self.terms["linear/mixer"] += flops
        return output


def _is_operator(func: Any) -> bool:
    """Whether it is an ordinary operator, not one of higher order."""
    return isinstance(func, torch._ops.OpOverload)


@functools.cache
def _kind(func: Any) -> str:
    """What decides the cost of an operator; "unknown" outside PyTorch's own."""
    if not _is_operator(func):
        return "unknown"
    if _product_formula(func) is not None:
        return "product"
    if func.namespace != "aten":
        return "unknown"
    if func.is_view or torch.Tag.inplace_view in func.tags or _name(func) in FREE:
        return "free"
    for kind, names in BY_NAME.items():
        if _name(func) in names:
            return kind
    for kind, tag in (("reduction", torch.Tag.reduction), ("elementwise", torch.Tag.pointwise)):
        if _is_tagged(func, tag):
            return kind
    return "unknown"


def _name(func: Any) -> str:
    """The name without its name space; an operator in place has the name of the plain one."""
    return func._schema.name.split("::")[1].rstrip("_")


def _product_formula(func: Any) -> Any:
    packet = func._overloadpacket
    if func.namespace == "aten":
        packet = getattr(torch.ops.aten, _name(func), packet)
    return flop_registry.get(packet)


def _is_tagged(func: Any, tag: torch.Tag) -> bool:
    """Whether a form of the operator, in place or not, has the tag."""
    plain = getattr(torch.ops.aten, _name(func), func._overloadpacket)
    return tag in func.tags or any(tag in getattr(plain, o).tags for o in plain.overloads())


def _cost(func: Any, args: Any, kwargs: Any, output: Any) -> int:
    """FLOPs of one call of a known operator."""
    kind, name = _kind(func), _name(func)
    if kind == "product":
        is_complex = isinstance(output, Tensor) and output.is_complex()
        return _product_formula(func)(*args, **kwargs, out_val=output) * (4 if is_complex else 1)
    if kind == "vector product":
        return 2 * args[BY_NAME[kind][name]].numel()
    if kind == "solve":
        return args[0].shape[-1] * output.numel()
    if kind == "transform":
        return _fft_flops(name, args, output)
    if kind == "written out":
        return BY_NAME[kind][name] * args[0].numel()
    if kind == "free":
        return 0
    if name in SCATTERED:
        return _arithmetic_elements(args[SCATTERED[name]])
    return _arithmetic_elements(args[0] if kind == "reduction" else output)


def _fft_flops(name: str, args: Any, output: Tensor) -> int:
    signal = output if name == "_fft_c2r" else args[0]
    points = math.prod(signal.shape[axis] for axis in args[1])
    share = 1.0 if name == "_fft_c2c" else 0.5
    return round(share * 5 * signal.numel() * math.log2(points))


def _arithmetic_elements(values: Any) -> int:
    """Elements of floating-point tensors; a complex one counts as two."""
    tensors = [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]
    return sum(
        t.numel() * (2 if t.is_complex() else 1)
        for t in tensors
        if t.is_floating_point() or t.is_complex()
    )
