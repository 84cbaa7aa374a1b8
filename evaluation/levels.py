"""The model's logits in bfloat16, float32 and float64, and how far the first two are trusted.

A level decides a token where its largest logit leads the runner-up by its *tolerance* or more;
otherwise the next finer level is asked, and float64 always decides.  The tolerance is empirical:
a multiple of the largest error seen on a sample of the set, not a bound of the error.  Every close
call measures the error again, and one above `GUARD` of the tolerance raises `ToleranceTooSmall`;
but an error that is large only where the lead is wide would stay unseen.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from common import RunError
from evaluation.argmax import TIE
from models.exact import exact_copy
from models.transformer import Transformer
from training.batches import SequenceTensors
from training.precision import autocast, resolve_precision

COARSE, SINGLE, EXACT = range(3)  # bfloat16, float32, float64

# By level.  An arg-max can flip where the lead is below twice the error, so 16 stays right where
# the true maximum is eight times what the sample showed.  A tolerance as generous in bfloat16
# would leave most sequences to float32.  There the sample is larger, and thousands of sequences
# are looked at again, whose errors keep the tolerance at three times the largest of them or more.
SAFETY = (4.0, 16.0)  # tolerance in multiples of the sampled error
SAMPLED_ROWS = (64, 16)
SAMPLE_BATCH = 16
GUARD = (1 / 3, 1 / 2)  # share of the tolerance that no error may exceed
MINIMUM_TOLERANCE = 1e-6  # a thousand times `TIE`
# Widths of bfloat16 batches are rounded up to this: oneDNN keeps its compiled bfloat16 products,
# about 1 MB for every shape it meets, up to a thousand of them.
WIDTH_STEP = 8


class ToleranceTooSmall(Exception):
    """An ``error`` above `GUARD` of the tolerance of ``level`` (`COARSE` or `SINGLE`) was met."""

    def __init__(self, level: int, error: float) -> None:
        super().__init__(error)
        self.level = level
        self.error = error


class Levels:
    """One model at three precisions.

    ``tolerances`` (in logits) and what close calls found: ``close_calls``, the tokens for which
    float64 was asked, and ``largest_error``, the largest error of a float32 logit among them.
    """

    def __init__(self, model: Transformer, device: torch.device) -> None:
        self.model = model.to(device).float().eval()
        self.exact = exact_copy(self.model)
        self.device = device
        self.has_coarse = resolve_precision("auto", device, model.dim) == "bfloat16"
        self.tolerances = [0.0, 0.0]
        self.close_calls, self.largest_error = 0, 0.0

    def calibrate(self, sequences: SequenceTensors) -> None:
        """Set the tolerances from errors on a sample; `RunError` when logits are not finite."""
        errors = self.sampled_errors(sequences)
        if not all(math.isfinite(error) for error in errors):
            raise RunError("the model's logits are not finite; it cannot be evaluated")
        self.tolerances = [
            max(safety * error, MINIMUM_TOLERANCE)
            for safety, error in zip(SAFETY, errors, strict=True)
        ]

    def raise_tolerance(self, failure: ToleranceTooSmall) -> None:
        """Set the tolerance anew from the error that was too large for it."""
        self.tolerances[failure.level] = SAFETY[failure.level] * failure.error

    def sampled_errors(self, sequences: SequenceTensors) -> tuple[float, float]:
        """Return the largest differences to float64 logits, of bfloat16 and of float32, that a few
        sequences show: bfloat16's to float32 plus float32's own, 0 where it is not used."""
        single = self._sampled_error(SINGLE, sequences)
        return self._sampled_error(COARSE, sequences) + single if self.has_coarse else 0.0, single

    def _sampled_error(self, level: int, sequences: SequenceTensors) -> float:
        """Return the largest difference to the next finer level's logits on the sample."""
        count = min(SAMPLED_ROWS[level], len(sequences))
        rows = torch.linspace(0, len(sequences) - 1, count).long()
        largest = 0.0
        for some in rows.to(self.device).split(SAMPLE_BATCH):
            batch = sequences.batch(some)
            inputs, counted = batch.tokens[:, :-1], batch.loss_mask
            finer = self.logits(level + 1, inputs, counted)
            difference = self.logits(level, inputs, counted).double() - finer.double()
            largest = max(largest, float(difference.abs().nan_to_num(math.inf).max()))
        return largest

    def logits(self, level: int, inputs: Tensor, counted: Tensor) -> Tensor:
        """Return the logits (targets, V) of ``level`` after those of ``inputs`` (B, T) that are
        ``counted`` (B, T)."""
        if level == COARSE:
            missing = self.padded_width(inputs.shape[1]) - inputs.shape[1]
            with autocast("bfloat16", self.device):
                hidden = self.model.hidden(F.pad(inputs, (0, missing)))  # (B, T + missing, D)
            return self.model.head(hidden[F.pad(counted, (0, missing))].float())
        model = self.exact if level == EXACT else self.model
        return model.head(model.hidden(inputs)[counted])

    def padded_width(self, length: int) -> int:
        """Return the width of a bfloat16 batch whose longest input has ``length`` tokens."""
        return min(-(-length // WIDTH_STEP) * WIDTH_STEP, self.model.max_len)

    def check_error(self, level: int, logits: Tensor, finer: Tensor, close_calls: int) -> None:
        """Hold ``logits`` of ``level`` against the next finer ones; count ``close_calls``.

        Raises `ToleranceTooSmall`, and `RunError` when logits are not finite.
        """
        error = float((logits.double() - finer.double()).abs().max())
        if level == SINGLE:
            self.close_calls += close_calls
            self.largest_error = max(self.largest_error, error)
        # Within it, a lead of the tolerance is one of more than `TIE` in the finer logits.
        if not error <= GUARD[level] * (self.tolerances[level] - TIE):
            if not math.isfinite(error):
                raise RunError("the model's logits are not finite; it cannot be evaluated")
            raise ToleranceTooSmall(level, error)
