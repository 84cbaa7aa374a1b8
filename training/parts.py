"""A batch in parts of like length: less padding, or less memory, and the same gradient.

The parts of a batch are held one after another and their gradients summed.  Lengths within a batch
differ by as much as those of the data do (half of a padded Arithmetic batch is padding), and
sorting the data instead would give batches that are no samples of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from training.batches import SequenceTensors, rounded_up


@dataclass(frozen=True)
class Cutting:
    """Where cutting a batch pays: one more part costs as much as ``overhead`` tokens; cuts lie at
    multiples of 1 / ``grains`` of the batch; T is rounded up to a multiple of ``width_step``."""

    overhead: int
    grains: int
    width_step: int


# By precision, measured on one core at D = 32 to 128.  In bfloat16 a part casts every weight once
# more, and oneDNN compiles kernels for every shape and keeps a thousand: so few shapes.
ON_CPU = {"float32": Cutting(300, 16, 1), "bfloat16": Cutting(600, 4, 8)}


def parts_of(
    sequences: SequenceTensors, index: Tensor, cutting: Cutting | None, most: int | None
) -> list[Tensor]:
    """Cut ``index`` (B,), sorted by length, into parts of at most ``most`` sequences.

    With ``cutting`` also wherever that saves more padding than a part costs.
    """
    if len(index) == 0:  # one of several processes, and the batch is smaller than they are many
        return []
    sizes = [len(index)]
    if cutting is not None:
        grain = max(1, len(index) // cutting.grains)
        lengths = sequences.host_lengths[index].numpy()
        sizes = sizes_without_padding(lengths, grain, cutting.overhead)
    return [piece for part in index.split(sizes) for piece in part.split(most or len(part))]


def sizes_without_padding(lengths: np.ndarray, grain: int, overhead: int) -> list[int]:
    """Return the sizes of the parts of a batch whose sorted lengths are ``lengths`` (B,).

    The cut, at a multiple of ``grain``, that saves most padding first, then each side likewise.
    """
    cuts = np.arange(grain, len(lengths), grain)
    saved = cuts * (lengths[-1] - lengths[cuts - 1])  # tokens
    if not len(cuts) or saved.max() <= overhead:
        return [len(lengths)]
    cut = cuts[saved.argmax()]
    shorter = sizes_without_padding(lengths[:cut], grain, overhead)
    return shorter + sizes_without_padding(lengths[cut:], grain, overhead)


def padded_share(sequences: SequenceTensors, parts: Iterable[Tensor], width_step: int) -> float:
    """Return the share of padding among the input tokens of ``parts`` of batches."""
    padded = real = 0
    for part in parts:
        lengths = sequences.host_lengths[part]
        width = rounded_up(int(lengths.max()), width_step, sequences.longest) - 1
        padded += len(part) * width
        real += int((lengths - 1).sum())
    return 1 - real / padded if padded else 0.0
