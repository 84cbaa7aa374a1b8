"""What is written so far for each sequence of a set."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tasks.task import EOS_ID, PAD_ID
from training.batches import Batch, SequenceTensors

TO_CERTIFY, TO_GENERATE, DONE = range(3)  # what a sequence waits for


class Transcript:
    """The tokens written for N sequences, on the device of ``sequences``.

    ``tokens`` (N, ``longest`` + 1): prompt and what is written, padded; ``lengths`` (N,) counts
    both; ``first_mistake`` (N,): position of the first token that is not gold, -1 where there is
    none; ``stage`` (N,): what a row waits for; ``least_lead`` (2, N): the smallest lead by which
    bfloat16 and float32 (`levels.COARSE`, `levels.SINGLE`) decided a token of the row that counts.
    """

    def __init__(self, sequences: SequenceTensors, longest: int) -> None:
        count, device = len(sequences), sequences.tokens.device
        self.longest = longest
        self.tokens = sequences.tokens.new_full((count, longest + 1), PAD_ID)
        self.lengths = torch.zeros(count, dtype=torch.long, device=device)
        self.first_mistake = torch.full((count,), -1, device=device)
        self.stage = torch.full((count,), TO_CERTIFY, device=device)
        self.least_lead = torch.full((2, count), math.inf, device=device)

    def waiting(self, stage: int) -> Tensor:
        """Return the rows that wait for ``stage``."""
        return torch.nonzero(self.stage == stage).flatten()

    def num_done(self) -> int:
        """Return how many sequences are complete."""
        return int((self.stage == DONE).sum())

    def ended(self, rows: Tensor) -> Tensor:
        """Return which of ``rows`` (B,) end in EOS or are longer than any valid sequence."""
        lengths = self.lengths[rows]
        return (self.tokens[rows, lengths - 1] == EOS_ID) | (lengths > self.longest)

    def write_gold(self, rows: Tensor, batch: Batch, lengths: Tensor) -> None:
        """Write the gold sequences ``batch`` (B, T + 1) of ``lengths`` (B,) into ``rows`` (B,)."""
        self.tokens[rows] = PAD_ID
        self.tokens[rows, : batch.tokens.shape[1]] = batch.tokens.to(self.tokens.dtype)
        self.lengths[rows] = lengths
        self.first_mistake[rows] = -1
        self.stage[rows] = DONE

    def end_in_mistake(self, rows: Tensor, position: Tensor, token: Tensor) -> None:
        """Put a first wrong ``token`` (B,) at ``position`` (B,), and nothing after it."""
        columns = torch.arange(self.tokens.shape[1], device=self.tokens.device)
        self.tokens[rows] = self.tokens[rows].masked_fill(columns >= position[:, None], PAD_ID)
        self.tokens[rows, position] = token.to(self.tokens.dtype)
        self.lengths[rows] = position + 1
        self.first_mistake[rows] = position
        self.stage[rows] = TO_GENERATE

    def append(self, rows: Tensor, token: Tensor) -> None:
        """Write one more ``token`` (B,) in each of ``rows`` (B,)."""
        self.tokens[rows, self.lengths[rows]] = token.to(self.tokens.dtype)
        self.lengths[rows] += 1

    def note_lead(self, level: int, rows: Tensor, lead: Tensor) -> None:
        """Note that ``level`` decided a further token of ``rows`` (B,) by ``lead`` (B,)."""
        self.least_lead[level, rows] = torch.minimum(self.least_lead[level, rows], lead)

    def reopen(self, tolerances: list[float]) -> None:
        """Take back every row of which a token was decided by less than today's tolerance.

        What is left is what a run with these ``tolerances`` from the start would have decided:
        the other rows never came closer.
        """
        limits = torch.tensor(tolerances, device=self.stage.device)[:, None]  # (2, 1)
        self.stage[(self.least_lead < limits).any(0)] = TO_CERTIFY
