"""A batch in parts of like length: less padding, or less memory, and the same gradient.

The parts of a batch are held one after another and their gradients summed.  Lengths within a batch
differ by as much as those of the data do (half of a padded Arithmetic batch is padding), and
sorting the data instead would give batches that are no samples of it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from torch import Tensor

from training.batches import SequenceTensors, rounded_up

# What one more part costs on a CPU, in tokens: between 300 and 700 at D = 32 to 128.
PART_OVERHEAD_TOKENS = 300
# Parts are cut at multiples of an eighth of the batch: every other shape is a kernel that oneDNN
# compiles anew.
CUTS = 8


def parts_of(
    sequences: SequenceTensors, index: Tensor, avoid_padding: bool, most: int | None
) -> list[Tensor]:
    """Cut ``index`` (B,), sorted by length, into parts of at most ``most`` sequences.

    With ``avoid_padding`` also wherever that saves more padding than a part costs.
    """
    sizes = [len(index)]
    if avoid_padding:
        grain = max(1, len(index) // CUTS)
        sizes = sizes_without_padding(sequences.host_lengths[index].numpy(), grain)
    parts = index.split(sizes)
    return [piece for part in parts if len(part) for piece in part.split(most or len(part))]


def sizes_without_padding(lengths: np.ndarray, grain: int) -> list[int]:
    """Return the sizes of the parts of a batch whose sorted lengths are ``lengths`` (B,).

    The cut that saves most padding first, then each side likewise.
    """
    cuts = np.arange(grain, len(lengths), grain)
    saved = cuts * (lengths[-1] - lengths[cuts - 1])  # tokens
    if not len(cuts) or saved.max() <= PART_OVERHEAD_TOKENS:
        return [len(lengths)]
    cut = cuts[saved.argmax()]
    return [
        *sizes_without_padding(lengths[:cut], grain),
        *sizes_without_padding(lengths[cut:], grain),
    ]


def padded_share(sequences: SequenceTensors, parts: Iterable[Tensor], width_step: int) -> float:
    """Return the share of padding among the input tokens of ``parts`` of batches."""
    padded = real = 0
    for part in parts:
        lengths = sequences.host_lengths[part]
        width = rounded_up(int(lengths.max()), width_step, sequences.longest) - 1
        padded += len(part) * width
        real += int((lengths - 1).sum())
    return 1 - real / padded if padded else 0.0
