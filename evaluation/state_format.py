"""A model's state, or its weights, rounded to few bits.

A model whose state is rounded after every token is a different model: it has no float64 reference.
"""

import copy
import re
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from common import UserError
from models.transformer import State, Transformer
from tasks.sequences import SequenceSet
from training.data import SequenceTensors

SCALED_ROWS = 128  # training sequences from which integer scales are taken


class Format(NamedTuple):
    """Numbers of 1 + `exponent_bits` + `mantissa_bits` bits up to `largest`; without an exponent,
    integers of `mantissa_bits` + 1 bits times a scale."""

    mantissa_bits: int
    exponent_bits: int
    largest: float

    @property
    def bits(self) -> int:
        return 1 + self.exponent_bits + self.mantissa_bits

    def round(self, x: Tensor, scale: Tensor | float = 1.0) -> Tensor:
        """Round float32 `x`, ties to even, saturating; integers to multiples of `scale`."""
        if self.exponent_bits:
            smallest = 2 - 2 ** (self.exponent_bits - 1)  # the exponent of subnormal numbers
            exponent = torch.frexp(x).exponent - 1
            exponent = exponent.clamp(min=smallest) - self.mantissa_bits
            step = torch.ldexp(torch.ones_like(x), exponent)
            return ((x / step).round() * step).clamp(-self.largest, self.largest)
        step = torch.as_tensor(scale, dtype=x.dtype, device=x.device)
        levels = (x / step).round().clamp(-self.largest, self.largest)
        return torch.where(step > 0, levels * step, x)


NAMED = {
    "float32": "float23e8",
    "float16": "float10e5",
    "bfloat16": "float7e8",
    "float8_e5m2": "float2e5",
}


def parse_format(name: str) -> Format:
    """The format of that name, else UserError: `float<m>e<e>` has m mantissa and e exponent bits,
    as IEEE 754; float8_e4m3, without infinity, reaches 448; `int<b>` has b bits."""
    if name == "float8_e4m3":
        return Format(3, 4, 448.0)
    if found := re.fullmatch(r"float(\d+)e(\d+)", NAMED.get(name, name)):
        mantissa, exponent = int(found[1]), int(found[2])
        if mantissa <= 23 and 2 <= exponent <= 8:
            largest = (2 - 2.0**-mantissa) * 2.0 ** (2 ** (exponent - 1) - 1)
            return Format(mantissa, exponent, largest)
    if (found := re.fullmatch(r"int(\d+)", name)) and 2 <= int(found[1]) <= 24:
        return Format(int(found[1]) - 1, 0, 2.0 ** (int(found[1]) - 1) - 1)
    raise UserError(
        f"format {name}: unknown; known: {', '.join(NAMED)}, float8_e4m3, float<m>e<e> of m <= 23 "
        "mantissa and 2 <= e <= 8 exponent bits, and int<b> of 2 to 24 bits"
    )


@dataclass
class StateRounding:
    """Rounds every floating-point number of a state. `scales`, for integers: by layer and tensor
    name, (1, H, 1, ...) or (1, ...)."""

    format: Format
    scales: list[dict[str, Tensor]]

    @torch.no_grad()
    def __call__(self, state: State) -> None:
        for number, layer in enumerate(state):
            for name, held in layer.tensors.items():
                if held.is_floating_point():
                    scale = self.scales[number][name] if self.scales else 1.0
                    layer.tensors[name] = self.format.round(held, scale)


def state_rounding(name: str, model: Transformer, training: SequenceSet) -> StateRounding:
    """The rounding of `model`'s state to format `name`. Integers take a scale per layer and head
    from the largest number in the state over `SCALED_ROWS` of the `training` sequences."""
    found = parse_format(name)
    if found.exponent_bits:
        return StateRounding(found, [])
    return StateRounding(found, _scales(model, training, found.largest))


@torch.no_grad()
def _scales(model: Transformer, training: SequenceSet, largest: float) -> list[dict[str, Tensor]]:
    device = next(model.parameters()).device
    some = SequenceTensors(training.select(slice(SCALED_ROWS)), device)
    model = model.float().eval()
    scales: list[dict[str, Tensor]] = [{} for _ in model.blocks]
    for length in range(1, int(some.lengths.max())):
        tokens = some.tokens[some.lengths > length, :length]
        _, state = model.prefill(tokens, torch.full((len(tokens),), length, device=device))
        for block, layer, known in zip(model.blocks, state, scales, strict=True):
            for name, held in layer.tensors.items():
                if not held.is_floating_point():
                    continue  # never rounded
                whole = held.dim() < 3 or name in ("recent", "inputs")  # axis 1 is not heads
                by_head = not whole and held.shape[1] == block.mixer.num_heads
                others = [axis for axis in range(held.dim()) if axis != 1 or not by_head]
                scale = held.abs().amax(others, keepdim=True) / largest
                known[name] = torch.maximum(known.get(name, scale), scale)
    return scales


@torch.no_grad()
def rounded_weights(model: Transformer, name: str) -> Transformer:
    """A copy with rounded parameters; integers are scaled by the tensor's largest entry."""
    found, rounded = parse_format(name), copy.deepcopy(model)
    for parameter in rounded.parameters():
        weight = parameter.float()
        parameter.copy_(found.round(weight, weight.abs().max() / found.largest))
    return rounded
