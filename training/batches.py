"""Batches by index from memory, so drawn that little of them is padding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

# Sequences of like length are put together inside windows of this many batches: long enough
# that padding nearly vanishes, short enough that a batch still mixes the data set.
WINDOW_BATCHES = 64


@dataclass(frozen=True)
class Batch:
    """``tokens`` (B, T + 1): inputs are ``[:, :-1]``, targets ``[:, 1:]``; ``loss_mask`` (B, T)
    is true at the targets that count: chain, answer and EOS, not the prompt, not the padding;
    ``counted`` (targets,) are their places in the flattened (B * T)."""

    tokens: Tensor
    loss_mask: Tensor
    counted: Tensor

    def at_targets(self, values: Tensor) -> Tensor:
        """Return the rows of ``values`` (B, T, ...) at the targets that count, (targets, ...).

        As ``values[loss_mask]``, which would have to ask the device how many there are.
        """
        return values.flatten(0, 1).index_select(0, self.counted)


class SequenceTensors:
    """A `tasks.task.SequenceSet` as tensors on one device; batches are index selections.

    ``tokens`` (N, W) in their small integer type, ``lengths`` and ``prompt_lengths`` (N,).  Both
    lengths are known to the host too, which so cuts a batch without waiting for the device.
    """

    def __init__(self, sequences, device: torch.device | str = "cpu") -> None:
        tokens = np.ascontiguousarray(sequences.tokens)
        if tokens.dtype == np.uint16:
            tokens = tokens.astype(np.int16 if tokens.max(initial=0) < 2**15 else np.int32)
        self.tokens = torch.from_numpy(np.array(tokens, copy=not tokens.flags.writeable)).to(device)
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

    def batch(self, index: Tensor, width_step: int = 1) -> Batch:
        """Return the sequences ``index`` (B,), trimmed to the longest of them, T rounded up to a
        multiple of ``width_step``.

        An ``index`` on the host leaves the device to what it is at; one there waits for it.
        """
        on_host, index = index.cpu(), index.to(self.tokens.device, non_blocking=True)
        width = rounded_up(int(self.host_lengths[on_host].max()), width_step, self.longest)
        tokens = self.tokens[:, :width].index_select(0, index).long()  # (B, T + 1)
        target_position = torch.arange(1, width, device=tokens.device)  # (T,)
        lengths = self.lengths.index_select(0, index)
        first = self.prompt_lengths.index_select(0, index)
        within = target_position < lengths[:, None]
        loss_mask = (target_position >= first[:, None]) & within
        counted = places(first - 1, lengths - first, width - 1, self.num_targets(on_host))
        return Batch(tokens, loss_mask, counted)


def places(first: Tensor, counts: Tensor, width: int, total: int) -> Tensor:
    """Return the places (total,) in the flattened (B * width) of each row's ``counts`` (B,) columns
    from ``first`` (B,) on; ``total`` is their sum, which the host knows."""
    begin = torch.arange(len(first), device=first.device) * width + first  # (B,)
    before = counts.cumsum(0) - counts  # (B,), columns of the rows above
    every = torch.arange(total, device=first.device)
    return every + (begin - before).repeat_interleave(counts, output_size=total)


def rounded_up(length: int, width_step: int, longest: int) -> int:
    """Return the least length of at least ``length`` tokens whose inputs, one fewer, are a
    multiple of ``width_step``, or ``longest``."""
    return min(-(-(length - 1) // width_step) * width_step + 1, longest)


class BatchOrder:
    """Which sequences make up batch ``step``: a pure function of (seed, step).

    Every epoch is a new permutation; within windows of `WINDOW_BATCHES` batches the sequences
    are sorted by length and cut, and the batches are then shuffled.  The last, incomplete batch
    of an epoch is kept.
    """

    def __init__(self, lengths: Tensor, batch_size: int, seed: int) -> None:
        self.lengths = lengths.cpu().numpy()
        self.batch_size = min(batch_size, len(lengths))
        self.seed = seed
        self.batches_per_epoch = -(-len(lengths) // self.batch_size)
        self._epoch = -1
        self._batches: list[np.ndarray] = []

    def indices(self, step: int) -> Tensor:
        """Return the indices (B,) of batch ``step`` (0-based, over all epochs)."""
        epoch, place = divmod(step, self.batches_per_epoch)
        if epoch != self._epoch:
            self._batches = self._draw(epoch)
            self._epoch = epoch
        return torch.from_numpy(self._batches[place])

    def padded_share(self, width_step: int = 1) -> float:
        """Return the share of padding among the input tokens of the current epoch's batches."""
        longest = int(self.lengths.max())
        widths = [
            rounded_up(int(self.lengths[b].max()), width_step, longest) - 1 for b in self._batches
        ]
        padded = sum(len(b) * width for b, width in zip(self._batches, widths, strict=True))
        real = sum(int((self.lengths[b] - 1).sum()) for b in self._batches)
        return 1 - real / padded if padded else 0.0

    def _draw(self, epoch: int) -> list[np.ndarray]:
        generator = np.random.Generator(np.random.Philox(key=[self.seed, epoch]))
        order = generator.permutation(len(self.lengths))
        window = self.batch_size * WINDOW_BATCHES
        batches: list[np.ndarray] = []
        for start in range(0, len(order), window):
            part = order[start : start + window]
            part = part[np.argsort(self.lengths[part], kind="stable")]
            batches += [part[i : i + self.batch_size] for i in range(0, len(part), self.batch_size)]
        return [batches[i] for i in generator.permutation(len(batches))]
