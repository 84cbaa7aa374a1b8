"""Sequences as tensors on a device, and batches of them."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from models.packing import Packing
from tasks.task import SequenceSet


@dataclass(frozen=True)
class Layout:
    """How a batch lies in memory.

    Padded, T is rounded up to a multiple of ``width_step``.  ``packed``, sequences lie one behind
    another, and the steps are those of `Packing`.  A part of a batch has at most ``most_tokens``
    inputs, unless one sequence alone has more.
    """

    packed: bool = False
    most_tokens: int | None = None
    size_step: int = 1
    width_step: int = 1


PADDED = Layout()
# From 1,000 to 8,000 tokens a part a step takes the same within a tenth (one core, D = 64 and 128);
# fewer take less memory.  In bfloat16 oneDNN compiles kernels for every shape: so few shapes.
PACKED = {
    "float32": Layout(True, 4096),
    "bfloat16": Layout(True, 4096, size_step=128, width_step=8),
}


@dataclass(frozen=True)
class Batch:
    """Inputs and targets of some sequences.

    ``inputs`` (B, T) are padded to the longest, or (N,) one behind another as ``packing`` says.
    ``targets`` (targets,) are those that count in the loss: the tokens of chain, answer and EOS,
    or every label.  ``counted`` (targets,) are the flat indices of the inputs that each is due at.
    """

    inputs: Tensor
    targets: Tensor
    counted: Tensor
    packing: Packing | None = None

    def at_targets(self, values: Tensor) -> Tensor:
        """Return the rows of ``values`` (B, T, D) or (N, D) at the targets, (targets, D).

        As indexing by a mask, but without a sync: a mask's size is known to the device only.
        """
        return values.flatten(0, -2).index_select(0, self.counted)

    def spread(self, values: Tensor, fill: float = 0) -> Tensor:
        """Return ``values`` (targets,) at the inputs (B, T) that they belong to, else ``fill``."""
        spread = values.new_full(self.inputs.shape, fill)
        spread.view(-1).index_copy_(0, self.counted, values)
        return spread


class SequenceTensors:
    """A `tasks.task.SequenceSet` on one device; batches are index selections.

    ``tokens`` (N, W) in their small integer type, ``targets`` (N, W), of which entry j is due after
    the tokens before j: themselves, or labels.  ``lengths`` and ``prompt_lengths`` (N,).
    ``host_lengths`` and ``host_num_targets`` (N,) lie on the CPU: the sizes of a batch are known
    without a sync.
    """

    def __init__(self, sequences: SequenceSet, device: torch.device | str = "cpu") -> None:
        self.tokens = _small(sequences.tokens).to(device)
        labels = sequences.labels
        self.targets = self.tokens if labels is None else _small(labels).to(device)
        self.host_lengths = torch.from_numpy(np.array(sequences.lengths, dtype=np.int64))
        prompt_lengths = torch.from_numpy(np.array(sequences.prompt_lengths, dtype=np.int64))
        self.host_num_targets = self.host_lengths - prompt_lengths
        self.lengths = self.host_lengths.to(device)
        self.prompt_lengths = prompt_lengths.to(device)
        self.longest = int(self.host_lengths.max())

    def __len__(self) -> int:
        return len(self.lengths)

    def num_targets(self, index: Tensor) -> int:
        """Return how many targets count in the loss of the sequences ``index`` (B,)."""
        return int(self.host_num_targets[index.cpu()].sum())

    def parts(
        self, index: Tensor, layout: Layout = PADDED, most_sequences: int | None = None
    ) -> list[Tensor]:
        """Split the batch ``index`` (B,), sorted by length, into parts.

        Their gradients are summed: the same gradient in less memory.
        """
        index = index[self.host_lengths[index].argsort(stable=True)]
        parts = [index]
        if layout.most_tokens is not None:
            tokens = (self.host_lengths[index] - 1).tolist()
            parts = list(index.split(filled(tokens, layout.most_tokens)))
        return [piece for part in parts for piece in part.split(most_sequences or len(part))]

    def width(self, index: Tensor, layout: Layout = PADDED) -> int:
        """Return T of the padded batch of sequences ``index`` (B,)."""
        longest = int(self.host_lengths[index.cpu()].max()) - 1
        return min(-(-longest // layout.width_step) * layout.width_step, self.longest - 1)

    def batch(self, index: Tensor, layout: Layout = PADDED) -> Batch:
        """Return the sequences ``index`` (B,); packed, they must be sorted by length.

        An index on the CPU avoids a sync.
        """
        if layout.packed:
            return self._packed(index, layout)
        width, total = self.width(index, layout), self.num_targets(index)
        index = index.to(self.tokens.device, non_blocking=True)
        tokens = self.tokens[:, : width + 1].index_select(0, index).long()  # (B, T + 1)
        due = tokens
        if self.targets is not self.tokens:
            due = self.targets[:, : width + 1].index_select(0, index).long()
        lengths = self.lengths.index_select(0, index)
        first = self.prompt_lengths.index_select(0, index)
        counted = flat_indices(first - 1, lengths - first, width, total)
        targets = due[:, 1:].flatten().index_select(0, counted)
        return Batch(tokens[:, :-1], targets, counted)

    def _packed(self, index: Tensor, layout: Layout) -> Batch:
        lengths = self.host_lengths[index].numpy()
        packing = Packing(lengths - 1, layout.size_step, layout.width_step, self.longest - 1)
        row_starts = index.numpy() * self.tokens.shape[1]  # of the flattened tokens
        inputs = np.repeat(row_starts - packing.offsets[:-1], lengths - 1)
        inputs += np.arange(len(inputs))
        num_targets = self.host_num_targets[index].numpy()
        firsts = packing.offsets[1:] - num_targets
        counted = np.repeat(firsts - num_targets.cumsum() + num_targets, num_targets)
        counted += np.arange(len(counted))
        flat = self.tokens.view(-1)
        tokens = flat.new_zeros(packing.size)
        tokens[: len(inputs)] = flat[torch.from_numpy(inputs)]
        targets = self.targets.view(-1)[torch.from_numpy(inputs[counted] + 1)].long()
        return Batch(tokens, targets, torch.from_numpy(counted), packing)


def _small(ids: np.ndarray) -> Tensor:
    """Return ``ids`` in a small integer type that torch can index; copy read-only arrays."""
    ids = np.ascontiguousarray(ids)
    if ids.dtype == np.uint16:
        ids = ids.astype(np.int16 if ids.max(initial=0) < 2**15 else np.int32)
    return torch.from_numpy(np.array(ids, copy=not ids.flags.writeable))


def flat_indices(first: Tensor, counts: Tensor, width: int, total: int) -> Tensor:
    """Return the indices (total,), in a flattened (B * width), of ``counts`` (B,) columns a row
    from column ``first`` (B,) on.

    ``total``, the sum of ``counts``, is known to the caller: reading it would be a sync.
    """
    row_starts = torch.arange(len(first), device=first.device) * width + first  # (B,)
    counted_before = counts.cumsum(0) - counts  # (B,), in the rows above
    every = torch.arange(total, device=first.device)
    return every + (row_starts - counted_before).repeat_interleave(counts, output_size=total)


def filled(tokens: list[int], most: int) -> list[int]:
    """Return the number of sequences in each part of at most ``most`` tokens."""
    sizes, held = [0], 0
    for count in tokens:
        if held + count > most and sizes[-1]:
            sizes, held = [*sizes, 0], 0
        sizes[-1] += 1
        held += count
    return sizes


class BatchOrder:
    """Uniform batches: every epoch is a new permutation, cut into batches.

    A pure function of (seed, step).  The last, incomplete batch of an epoch is kept, so that an
    epoch holds every sequence once and a batch the same mixture of lengths as the data.
    """

    def __init__(self, num_sequences: int, batch_size: int, seed: int) -> None:
        self.num_sequences = num_sequences
        self.batch_size = min(batch_size, num_sequences)
        self.batches_per_epoch = -(-num_sequences // self.batch_size)
        self.seed = seed
        self._permutation = functools.lru_cache(maxsize=1)(self._draw)

    def indices(self, step: int) -> Tensor:
        """Return the indices (B,) of batch ``step`` (0-based, over all epochs)."""
        epoch, number = divmod(step, self.batches_per_epoch)
        start = number * self.batch_size
        return self._permutation(epoch)[start : start + self.batch_size]

    def sequences_before(self, step: int) -> int:
        """Return how many sequences the batches before ``step`` hold."""
        epoch, number = divmod(step, self.batches_per_epoch)
        return epoch * self.num_sequences + number * self.batch_size

    def _draw(self, epoch: int) -> Tensor:
        generator = np.random.Generator(np.random.Philox(key=[self.seed, epoch]))
        return torch.from_numpy(generator.permutation(self.num_sequences))
