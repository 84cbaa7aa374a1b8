"""A model's cost, from the named terms of `Transformer.flops`.

Two conventions: `linear_layer_flops`, the blocks' linear layers only, reproduces Table 2 of Yang et
al. (2024); the sum of all terms adds token mixing, which efficient mixers save, and the vocabulary
head. A multiply-add is 2 FLOPs. Neither counts embedding, biases, LayerNorm, GELU, softmax, feature
maps or rotations. PyTorch's `FlopCounterMode` counts mixers without a formula.
"""

import copy

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from common import UserError


def linear_layer_flops(terms: dict[str, int]) -> int:
    """The blocks' linear layers: for softmax and linear attention 2 · 12 · M · D² · L, which agrees
    with Table 2 within 5 % at the paper's L; the paper states no convention."""
    return sum(count for name, count in terms.items() if name.startswith("linear/"))


def training_step_flops(terms: dict[str, int]) -> int:
    """One forward and one backward pass, as 3 forward passes (Kaplan et al. 2020, 2.1). What
    a backward pass recomputes is not counted."""
    return 3 * sum(terms.values())


def counted_forward(mixer: nn.Module, dim: int, length: int) -> dict[str, int]:
    """FLOPs of the matrix products of one pass over `length` tokens, on the meta device:
    "linear/mixer" inside `nn.Linear`, "mixing/products" all others. Raises UserError if there are
    none of the latter at a length above 1, if weights are unused or multiplied outside `nn.Linear`
    (as in `nn.LSTM`), or if the mixer does not run on the meta device."""
    name = type(mixer).__name__
    remedy = 'define flops(self, length) -> {"linear/...": FLOPs, "mixing/...": FLOPs}'
    moved = copy.deepcopy(mixer).to("meta").eval()
    try:
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            moved(torch.empty(1, length, dim, device="meta"))
    except Exception as error:
        mixer(torch.zeros(1, length, dim))  # a bug in `forward` is raised as it is
        raise UserError(f"mixer {name} does not run on the meta device; {remedy}") from error
    found = counter.get_flop_counts()
    layers = [f"{name}.{k}" for k, layer in moved.named_modules() if isinstance(layer, nn.Linear)]
    counts = [sum(found.get(layer, {}).values()) for layer in layers]
    linear = sum(counts)
    if 0 in counts or (linear == 0 and any(weight.dim() > 1 for weight in moved.parameters())):
        raise UserError(
            f"mixer {name}: weights are unused or multiplied outside `nn.Linear`; {remedy}"
        )
    products = counter.get_total_flops() - linear
    if products == 0 and length > 1:  # of one token, a product may be elementwise
        raise UserError(
            f"mixer {name}: it has no matrix product outside `nn.Linear` to count; {remedy}"
        )
    return {"linear/mixer": linear, "mixing/products": products}
