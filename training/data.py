"""Sequences as tensors on a device, and batches of them."""

import functools
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from models.packing import Packing, ranges, rounded_up
from tasks.sequences import SequenceSet


@dataclass(frozen=True)
class Layout:
    """How a batch is laid out in memory.

    Padded, T is rounded up to a multiple of `width_step`. If `packed`, sequences follow one
    another, with the steps of `Packing`. A part of a batch has at most `max_tokens` inputs, unless
    one sequence alone has more.
    """

    packed: bool = False
    max_tokens: int | None = None
    size_step: int = 1
    width_step: int = 1


PADDED = Layout()
# From 1,000 to 8,000 tokens per part, step time varies by < 10 % (one core, D = 64 and 128);
# fewer save memory. In bfloat16 oneDNN compiles a kernel per shape, hence few shapes.
PACKED = {
    "float32": Layout(True, 4096),
    "bfloat16": Layout(True, 4096, size_step=128, width_step=8),
}


@dataclass(frozen=True)
class Batch:
    """Inputs and targets of some sequences.

    `inputs` (B, T), padded, or (N,) packed by `packing`. `targets` (targets,) count in the loss:
    chain, answer and EOS, or every label; `counted` (targets,) are flat indices of their inputs.
    """

    inputs: Tensor
    targets: Tensor
    counted: Tensor
    packing: Packing | None = None

    def at_targets(self, values: Tensor) -> Tensor:
        """Rows of `values` (B, T, D) or (N, D) at the targets, (targets, D), without a sync."""
        return values.flatten(0, -2).index_select(0, self.counted)

    def spread(self, values: Tensor) -> Tensor:
        """`values` (targets,) placed at their inputs (B, T), 0 elsewhere."""
        spread = values.new_zeros(self.inputs.shape)
        spread.view(-1).index_copy_(0, self.counted, values)
        return spread


class SequenceTensors:
    """A `SequenceSet` on one device; batches are index selections.

    `tokens` (N, W) as small integers; `targets` (N, W): entry j is the output expected after
    reading tokens 0 .. j - 1, which is token j or its label; `lengths` and `prompt_lengths` (N,).
    `host_lengths` and `host_num_targets` (N,) are on the CPU, so batch sizes need no sync.
    """

    def __init__(self, sequences: SequenceSet, device: torch.device | str = "cpu") -> None:
        self.tokens = _small(sequences.tokens).to(device)
        labels = sequences.labels
        self.labelled = labels is not None
        self.targets = self.tokens if labels is None else _small(labels).to(device)
        self.host_lengths = torch.from_numpy(sequences.lengths).long()
        prompt_lengths = torch.from_numpy(sequences.prompt_lengths).long()
        self.host_num_targets = self.host_lengths - prompt_lengths
        self.lengths = self.host_lengths.to(device)
        self.prompt_lengths = prompt_lengths.to(device)
        self.longest = int(self.host_lengths.max())

    def __len__(self) -> int:
        return len(self.lengths)

    def num_targets(self, index: Tensor) -> int:
        return int(self.host_num_targets[index].sum())

    def parts(
        self, index: Tensor, layout: Layout = PADDED, max_sequences: int | None = None
    ) -> list[Tensor]:
        """Split the batch `index` (B,), sorted by length, into parts, to sum their gradients."""
        index = index[self.host_lengths[index].argsort(stable=True)]
        parts = [index]
        if layout.max_tokens is not None:
            widths = (self.host_lengths[index] - 1).tolist()
            parts = list(index.split(part_sizes(widths, layout.max_tokens, layout.packed)))
        return [piece for part in parts for piece in part.split(max_sequences or len(part))]

    def batch(self, index: Tensor, layout: Layout = PADDED) -> Batch:
        """The sequences `index` (B,), on the CPU to avoid a sync, sorted by length if packed."""
        device = self.tokens.device
        lengths = self.host_lengths[index].numpy() - 1  # of inputs
        counts = self.host_num_targets[index].numpy()
        row_starts = index.numpy() * self.tokens.shape[1]  # of the flattened tokens
        packing = None
        if layout.packed:
            packing = Packing(lengths, layout.size_step, layout.width_step, self.longest - 1)
            starts = packing.offsets[:-1]
            inputs = self.tokens.new_zeros(packing.size)
            inputs[: lengths.sum()] = self.tokens.view(-1)[ranges(row_starts, lengths)]
        else:
            width = min(rounded_up(int(lengths.max()), layout.width_step), self.longest - 1)
            starts = np.arange(len(index)) * width
            rows = index.to(device, non_blocking=True)
            inputs = self.tokens[:, :width].index_select(0, rows).long()  # (B, T)
        before = lengths - counts  # inputs before the first that counts
        due = ranges(row_starts + before + 1, counts).to(device, non_blocking=True)
        counted = ranges(starts + before, counts).to(device, non_blocking=True)
        return Batch(inputs, self.targets.view(-1)[due].long(), counted, packing)


def _small(ids: np.ndarray) -> Tensor:
    """`ids` in a small integer type that torch can index."""
    return torch.from_numpy(ids.astype(np.int32) if ids.dtype == np.uint16 else ids)


def part_sizes(widths: list[int], most: int, packed: bool) -> list[int]:
    """The number of sequences in each part of at most `most` tokens, for ascending `widths`;
    padding counts unless packed."""
    sizes, tokens = [0], 0
    for width in widths:
        tokens = tokens + width if packed else (sizes[-1] + 1) * width
        if sizes[-1] and tokens > most:
            sizes, tokens = [*sizes, 0], width
        sizes[-1] += 1
    return sizes


class BatchOrder:
    """Batches as a pure function of (seed, step): each epoch is a new permutation, cut into
    batches, the last of which may be smaller."""

    def __init__(self, num_sequences: int, batch_size: int, seed: int) -> None:
        self.num_sequences = num_sequences
        self.batch_size = min(batch_size, num_sequences)
        self.batches_per_epoch = -(-num_sequences // self.batch_size)
        self.seed = seed
        self._permutation = functools.lru_cache(maxsize=1)(self._draw)

    def indices(self, step: int) -> Tensor:
        """Indices (B,) of batch `step`, 0-based over all epochs."""
        epoch, number = divmod(step, self.batches_per_epoch)
        start = number * self.batch_size
        return self._permutation(epoch)[start : start + self.batch_size]

    def sequences_before(self, step: int) -> int:
        """The number of sequences in the batches before `step`."""
        epoch, number = divmod(step, self.batches_per_epoch)
        return epoch * self.num_sequences + number * self.batch_size

    def _draw(self, epoch: int) -> Tensor:
        generator = np.random.Generator(np.random.Philox(key=[self.seed, epoch]))
        return torch.from_numpy(generator.permutation(self.num_sequences))
