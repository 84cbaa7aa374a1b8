"""Batches by index from memory, trimmed to their longest sequence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from models.packing import Packing


@dataclass(frozen=True)
class Batch:
    """Some sequences, padded to the longest.

    ``tokens`` (B, T + 1): inputs are ``[:, :-1]``.  ``targets`` (B, T): the next tokens, or the
    labels of these inputs where the sequences have labels.  ``loss_mask`` (B, T) is true at the
    targets that count: chain, answer and EOS, not the prompt, not the padding; or every label.
    ``counted`` (targets,) are their indices in the flattened (B * T).
    """

    tokens: Tensor
    targets: Tensor
    loss_mask: Tensor
    counted: Tensor

    def at_targets(self, values: Tensor) -> Tensor:
        """Return the rows of ``values`` (B, T, ...) at the targets that count, (targets, ...).

        As ``values[loss_mask]``, but without a sync: a mask's size is known to the device only.
        """
        return values.flatten(0, 1).index_select(0, self.counted)


@dataclass(frozen=True)
class PackedBatch:
    """Some sequences one behind another, on a CPU.

    ``tokens`` (N,) are the inputs, laid out by ``packing``; those at ``counted`` (targets,) have
    the ``targets`` (targets,) that count.
    """

    tokens: Tensor
    packing: Packing
    counted: Tensor
    targets: Tensor


class SequenceTensors:
    """A `tasks.task.SequenceSet` as tensors on one device; batches are index selections.

    ``tokens`` (N, W) in their small integer type, ``targets`` (N, W), of which entry j is due after
    the tokens before j: themselves, or labels.  ``lengths`` and ``prompt_lengths`` (N,).
    ``host_lengths`` and ``host_num_targets`` (N,) are copies on the CPU: sizes of a batch are
    known without a sync.
    """

    def __init__(self, sequences, device: torch.device | str = "cpu") -> None:
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

    def sorted_by_length(self, index: Tensor) -> Tensor:
        """Return ``index`` (B,), the shortest sequences first."""
        return index[self.host_lengths[index].argsort(stable=True)]

    def num_targets(self, index: Tensor) -> int:
        """Return how many targets count in the loss of the sequences ``index`` (B,)."""
        return int(self.host_num_targets[index.cpu()].sum())

    def batch(self, index: Tensor, width_step: int = 1) -> Batch:
        """Return the sequences ``index`` (B,), trimmed to the longest of them, T rounded up to a
        multiple of ``width_step``.  A CPU index avoids a sync.
        """
        on_host, index = index.cpu(), index.to(self.tokens.device, non_blocking=True)
        width = rounded_up(int(self.host_lengths[on_host].max()), width_step, self.longest)
        tokens = self.tokens[:, :width].index_select(0, index).long()  # (B, T + 1)
        targets = tokens
        if self.targets is not self.tokens:
            targets = self.targets[:, :width].index_select(0, index).long()
        target_position = torch.arange(1, width, device=tokens.device)  # (T,)
        lengths = self.lengths.index_select(0, index)
        first = self.prompt_lengths.index_select(0, index)
        within = target_position < lengths[:, None]
        loss_mask = (target_position >= first[:, None]) & within
        total = self.num_targets(on_host)
        counted = flat_indices(first - 1, lengths - first, width - 1, total)
        return Batch(tokens, targets[:, 1:], loss_mask, counted)

    def packed(self, index: Tensor, size_step: int = 1, width_step: int = 1) -> PackedBatch:
        """Return the sequences ``index`` (B,), sorted by length, without padding; the steps are
        those of `Packing`.
        """
        lengths = self.host_lengths[index].numpy()
        packing = Packing(lengths - 1, size_step, width_step, self.longest - 1)
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
        return PackedBatch(tokens, packing, torch.from_numpy(counted), targets)


def _small(ids: np.ndarray) -> Tensor:
    """Return ``ids`` in a small integer type that torch can index; read-only ones are copied."""
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


def rounded_up(length: int, width_step: int, longest: int) -> int:
    """Return the least length of at least ``length`` tokens whose inputs, one fewer, are a
    multiple of ``width_step``, or ``longest``."""
    return min(-(-(length - 1) // width_step) * width_step + 1, longest)
