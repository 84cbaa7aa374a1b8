"""Greedy decoding, token after token, with the mixers' own state."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from evaluation.argmax import argmax_and_lead, exact_argmax
from evaluation.levels import SINGLE, Levels
from evaluation.memory import BatchSizes
from evaluation.transcript import DONE, TO_GENERATE, Transcript

# A batch is compacted, its state copied, once so few of its rows are unfinished.
COMPACT_BELOW = 0.75


class Decoder:
    """Writes on in the rows of ``transcript`` that have left the gold sequence."""

    def __init__(self, levels: Levels, transcript: Transcript, sizes: BatchSizes) -> None:
        self.levels, self.transcript, self.sizes = levels, transcript, sizes

    def run(self, report: Callable[[], None]) -> None:
        """Complete every row that waits for it, and call ``report`` after each batch."""
        mistaken = self.transcript.waiting(TO_GENERATE)
        order = mistaken[torch.argsort(self.transcript.first_mistake[mistaken])]
        for rows in order.split(self.sizes.rows):
            self.complete(rows)
            self.transcript.stage[rows] = DONE
            report()

    def complete(self, rows: Tensor) -> None:
        """Write on in ``rows`` (B,) from where they stand, to EOS or the longest sequence."""
        model, transcript = self.levels.model, self.transcript
        rows = rows[~transcript.ended(rows)]
        if not len(rows):
            return
        lengths = transcript.lengths[rows]
        logits, state = model.prefill(transcript.tokens[rows, : int(lengths.max())], lengths)
        token = torch.zeros_like(rows)
        live = torch.arange(len(rows), device=rows.device)  # the rows of the batch still going
        while True:
            token[live] = self.next_token(rows[live], logits[live])
            transcript.append(rows[live], token[live])
            live = live[~transcript.ended(rows[live])]
            if not len(live):
                return
            if len(live) <= COMPACT_BELOW * len(rows):
                rows, token, state = rows[live], token[live], model.select(state, live)
                live = torch.arange(len(rows), device=rows.device)
            # Finished rows run along, idle, at a position that exists; nobody reads their logits.
            positions = (transcript.lengths[rows] - 1).clamp(max=transcript.longest - 1)
            logits = model.step(token, positions, state)  # (B, V)

    def next_token(self, rows: Tensor, logits: Tensor) -> Tensor:
        """Return the next token of each of ``rows`` (B,) from its float32 ``logits`` (B, V)."""
        choice, lead = argmax_and_lead(logits)
        decided = lead >= self.levels.tolerances[SINGLE]  # which no NaN is
        self.transcript.note_lead(SINGLE, rows[decided], lead[decided])
        for part in self.sizes.split_for_float64(torch.nonzero(~decided).flatten()):
            exact_logits = self._exact_logits(rows[part])
            self.levels.check_error(SINGLE, logits[part], exact_logits, len(part))
            choice[part] = exact_argmax(exact_logits)
        return choice

    def _exact_logits(self, rows: Tensor) -> Tensor:
        """Return float64 logits (B, V) after ``rows`` (B,), by whole forward passes."""
        lengths = self.transcript.lengths[rows]
        prefix = self.transcript.tokens[rows, : int(lengths.max())]
        last = torch.arange(len(rows), device=rows.device), lengths - 1
        return self.levels.exact.head(self.levels.exact.hidden(prefix)[last])
