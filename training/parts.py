"""A batch in parts: less memory, and the same gradient.

The parts of a batch are held one after another and their gradients summed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from models.packing import rounded_up as rounded_up_size
from training.batches import SequenceTensors, rounded_up


@dataclass(frozen=True)
class PartSizes:
    """How a batch is packed: in parts of at most ``most_tokens``, unless one sequence alone has
    more; the steps are those of `Packing`."""

    most_tokens: int
    size_step: int
    width_step: int

    @property
    def steps(self) -> tuple[int, int]:
        """The arguments of `SequenceTensors.packed`."""
        return self.size_step, self.width_step


# From 1,000 to 8,000 tokens a part a step takes the same within a tenth (one core, D = 64 and 128);
# fewer take less memory.  In bfloat16 oneDNN compiles kernels for every shape: so few shapes.
ON_CPU = {"float32": PartSizes(4096, 1, 1), "bfloat16": PartSizes(4096, 128, 8)}


def parts_of(
    sequences: SequenceTensors, index: Tensor, sizes: PartSizes | None, most: int | None
) -> list[Tensor]:
    """Cut ``index`` (B,), sorted by length, into parts of at most ``most`` sequences.

    With ``sizes`` also wherever it says.
    """
    if len(index) == 0:  # there are more processes than sequences in the batch
        return []
    parts = [index]
    if sizes is not None:
        tokens = (sequences.host_lengths[index] - 1).tolist()
        parts = list(index.split(filled(tokens, sizes.most_tokens)))
    return [piece for part in parts for piece in part.split(most or len(part))]


def filled(tokens: list[int], most: int) -> list[int]:
    """Return how many sequences of so many ``tokens`` each part has, filled one after another."""
    sizes, held = [0], 0
    for count in tokens:
        if held + count > most and sizes[-1]:
            sizes, held = [*sizes, 0], 0
        sizes[-1] += 1
        held += count
    return sizes


def padded_share(
    sequences: SequenceTensors, parts: Iterable[Tensor], width_step: int, sizes: PartSizes | None
) -> float:
    """Return the share of padding among the input tokens of ``parts`` of batches."""
    padded = real = 0
    for part in parts:
        lengths = sequences.host_lengths[part]
        real += (tokens := int((lengths - 1).sum()))
        if sizes is not None:
            padded += rounded_up_size(tokens, sizes.size_step)
        else:
            width = rounded_up(int(lengths.max()), width_step, sequences.longest) - 1
            padded += len(part) * width
    return 1 - real / padded if padded else 0.0
