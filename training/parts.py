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

# What one more part costs on a CPU, in tokens.  In bfloat16 it casts every weight once more.
OVERHEAD_TOKENS = {"float32": 300, "bfloat16": 600}
# Parts are cut at quarters of the batch, and in bfloat16 their widths rounded up: for every shape
# oneDNN compiles kernels, and keeps a thousand.
CUTS = 4
BFLOAT16_WIDTH_STEP = 8


def cpu_shapes(precision: str) -> tuple[int, int]:
    """Return what one more part costs, in tokens, and the step between widths, on a CPU."""
    return OVERHEAD_TOKENS[precision], BFLOAT16_WIDTH_STEP if precision == "bfloat16" else 1


def parts_of(
    sequences: SequenceTensors, index: Tensor, overhead: int | None, most: int | None
) -> list[Tensor]:
    """Cut ``index`` (B,), sorted by length, into parts of at most ``most`` sequences.

    Also wherever that saves more tokens of padding than the ``overhead`` of a part; None: nowhere.
    """
    if len(index) == 0:  # one of several processes, and the batch is smaller than they are many
        return []
    sizes = [len(index)]
    if overhead is not None:
        grain = max(1, len(index) // CUTS)
        sizes = sizes_without_padding(sequences.host_lengths[index].numpy(), grain, overhead)
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
