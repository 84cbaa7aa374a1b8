"""Where each sequence first goes wrong, by one parallel pass over the gold sequences.

The pass looks in bfloat16 first, where that is quicker; float32 looks again at the sequences that
bfloat16 leaves open, float64 at those that float32 does.  Where bfloat16 leaves many open (an
untrained model), it is given up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from evaluation.argmax import argmax_and_lead, exact_argmax
from evaluation.levels import COARSE, EXACT, SINGLE, Levels
from evaluation.memory import BatchSizes
from evaluation.transcript import TO_CERTIFY, Transcript
from training.batches import Batch, SequenceTensors

# bfloat16 is given up when, after so many rows, it has left more than this share of them open.
COARSE_TRIAL_ROWS = 256
COARSE_OPEN_SHARE = 0.4


@dataclass
class _Found:
    """What the levels of precision found out about a batch.

    ``choice`` (B, T): the arg-max at every target; ``least_lead`` (2, B): by level, the smallest
    lead in the row up to its first mistake, if that level decided it.
    """

    choice: Tensor
    least_lead: Tensor


class Certifier:
    """One pass over the gold ``sequences`` that ``transcript`` says are to be certified."""

    def __init__(
        self, levels: Levels, transcript: Transcript, sizes: BatchSizes, sequences: SequenceTensors
    ) -> None:
        self.levels, self.transcript, self.sizes = levels, transcript, sizes
        self.sequences = sequences
        self.first_level = COARSE if levels.has_coarse else SINGLE
        self.coarse_rows = self.coarse_open = 0

    def run(self, report: Callable[[], None]) -> None:
        """Certify every row that waits for it, and call ``report`` after each batch."""
        for rows in self._batches():
            self.certify(rows)
            report()

    def _batches(self) -> list[Tensor]:
        """Cut the rows, sorted by length, into batches of bounded size and few shapes."""
        waiting = self.transcript.waiting(TO_CERTIFY)
        order = waiting[torch.argsort(self.sequences.lengths[waiting])]
        lengths = self.sequences.lengths[order].tolist()
        widths = [self.levels.padded_width(length - 1) for length in lengths]
        batches, start = [], 0
        for stop in range(1, len(order) + 1):
            if stop == len(order) or (stop + 1 - start) * widths[stop] > self.sizes.tokens:
                batches.append(order[start:stop])
                start = stop
        return batches

    def certify(self, rows: Tensor) -> None:
        """Write what ``rows`` (B,) generate up to their first mistake, or the whole gold row."""
        batch, device = self.sequences.batch(rows), rows.device
        gold, counted = batch.targets, batch.loss_mask  # (B, T)
        least_lead = torch.full((2, len(rows)), math.inf, device=device)
        found = _Found(torch.zeros_like(gold), least_lead)
        self.look(batch, torch.arange(len(rows), device=device), self.first_level, found)
        self.transcript.least_lead[:, rows] = found.least_lead
        self.transcript.write_gold(rows, batch, self.sequences.lengths[rows])
        wrong = (found.choice != gold) & counted
        mistaken = wrong.any(1)
        target = _first(wrong)[mistaken]
        token = found.choice[mistaken].gather(1, target[:, None]).flatten()
        self.transcript.end_in_mistake(rows[mistaken], target + 1, token)  # target t is token t + 1

    def look(self, batch: Batch, part: Tensor, level: int, found: _Found) -> Tensor:
        """Find the arg-maxes of rows ``part`` (b,) of ``batch``; return the logits (targets, V).

        Rows of which ``level`` cannot tell where they first go wrong are looked at again, one
        level finer.
        """
        inputs, counted = batch.tokens[part, :-1], batch.loss_mask[part]  # (b, T)
        logits = self.levels.logits(level, inputs, counted)
        if level == EXACT:
            found.choice[part] = _spread(exact_argmax(logits), counted, 0)
            return logits
        choice, lead = argmax_and_lead(logits)  # (targets,)
        found.choice[part] = _spread(choice, counted, 0)
        open_rows = self._open_rows(batch, part, level, found, lead)
        close, row_of_target = lead < self.levels.tolerances[level], torch.nonzero(counted)[:, 0]
        parts = self.sizes.split_for_float64(open_rows) if level == SINGLE else [open_rows]
        for some in parts:
            if len(some):
                finer = self.look(batch, part[some], level + 1, found)
                these = torch.isin(row_of_target, some)
                self.levels.check_error(level, logits[these], finer, int(close[these].sum()))
        return logits

    def _open_rows(
        self, batch: Batch, part: Tensor, level: int, found: _Found, lead: Tensor
    ) -> Tensor:
        """Return which of ``part`` the ``lead`` (targets,) of ``level`` leaves open, and note what
        it decides."""
        counted = batch.loss_mask[part]
        wrong = (found.choice[part] != batch.targets[part]) & counted
        least = _least_until(_spread(lead, counted, math.inf), _first(wrong))  # (b,)
        decided = least >= self.levels.tolerances[level]  # which no NaN is
        found.least_lead[level, part[decided]] = least[decided]
        open_rows = torch.nonzero(~decided).flatten()
        if level == COARSE:
            self._judge_coarse(len(part), len(open_rows))
        return open_rows

    def _judge_coarse(self, rows: int, open_rows: int) -> None:
        """Give bfloat16 up where it decides little."""
        self.coarse_rows += rows
        self.coarse_open += open_rows
        if self.coarse_rows >= COARSE_TRIAL_ROWS:
            many = self.coarse_open > COARSE_OPEN_SHARE * self.coarse_rows
            self.first_level = SINGLE if many else COARSE


def _spread(values: Tensor, mask: Tensor, fill: float) -> Tensor:
    """Return a tensor like ``mask`` (B, T) with ``values`` where it is true, ``fill`` elsewhere."""
    spread = values.new_full(mask.shape, fill)
    spread[mask] = values
    return spread


def _least_until(lead: Tensor, last: Tensor) -> Tensor:
    """Return the minimum of each row of ``lead`` (B, T) over columns up to ``last`` (B,)."""
    columns = torch.arange(lead.shape[1], device=lead.device)
    return lead.masked_fill(columns > last[:, None], math.inf).amin(1)


def _first(mask: Tensor) -> Tensor:
    """Return for each row of ``mask`` (B, T) the first true column, T where there is none."""
    columns = torch.arange(mask.shape[1], device=mask.device)
    return torch.where(mask, columns, mask.shape[1]).amin(1)
