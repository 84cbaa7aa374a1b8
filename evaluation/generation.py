"""Exact generation: what free greedy generation would write, without generating most of it.

The generated token is *by definition* the arg-max of the model's float64 logits on the prefix; two
float64 logits closer than 1e-9 are a tie, which the lowest token id wins (`argmax.exact_argmax`).
Everything here computes exactly that, whatever the batch, in float32 where float32 cannot be
wrong as far as its measured error tells:

1. **Certify** (`certify`). One parallel forward pass over prompt + gold chain + answer + EOS.  If
   the arg-max equals the gold token at every target, free generation writes the gold sequence,
   token for token: by induction each prefix it would see is the gold prefix.
2. **Generate the rest** (`decode`) from each sequence's first mistake on (before it, generation
   equals the gold prefix), with the mixers' own state, finished rows leaving the batch.
3. **Close calls** (`levels`). Where the two largest float32 logits lie closer than the tolerance,
   float32 rounding could decide, so a float64 copy of the model decides instead, by a plain
   forward pass over the whole prefix.  The tolerance is empirical: a multiple of the largest
   float32 error seen on a sample of the set itself, not a bound.  Every close call measures the
   error again, and if one takes up too much of the tolerance, the tolerance grows and every
   sequence that it would have left open is done again.
4. **bfloat16 first, where it is quicker.** The certifying pass first looks in bfloat16, with a
   tolerance of its own, found and guarded in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from common import UserError
from evaluation.certify import Certifier
from evaluation.decode import Decoder
from evaluation.levels import SINGLE, Levels, ToleranceTooSmall
from evaluation.memory import BatchSizes
from evaluation.transcript import Transcript
from models.exact import require_causal
from models.transformer import Transformer
from tasks.task import SequenceSet
from training.batches import SequenceTensors

Progress = Callable[[int, int], None]  # called with (sequences done, sequences in all)


@dataclass
class Generation:
    """What greedy generation writes for each of N sequences.

    ``tokens`` (N, W) holds prompt and generated tokens, padded; ``lengths`` (N,) counts both, EOS
    included when it was reached; ``first_mistake`` (N,) is the position in ``tokens`` of the
    first token that differs from gold, -1 where there is none.  ``certified`` counts the sequences
    without a mistake; ``close_calls`` the tokens that float64 was asked for, those of a batch that
    was done again included.  ``tolerance`` (the lead, in logits, from which float32 decides) and
    ``largest_error`` (of a float32 logit at a close call) are measured, not bounds.
    """

    tokens: np.ndarray
    lengths: np.ndarray
    first_mistake: np.ndarray
    certified: int = 0
    close_calls: int = 0
    tolerance: float = 0.0
    largest_error: float = 0.0


@torch.no_grad()
def generate(
    model: Transformer,
    sequences: SequenceSet,
    memory_mb: float = 1024,
    device: torch.device | str = "cpu",
    progress: Progress = lambda done, total: None,
) -> Generation:
    """Return what greedy generation writes for the prompts of ``sequences``.

    A sequence ends with EOS, or once it is longer than `longest_sequence`.  ``memory_mb`` bounds
    what a batch holds; it is halved where the device has less.  The model is left on ``device``, in
    float32 and in evaluation mode.  Raises `UserError` for sequences longer than the model's
    max_len and for a mixer that looks ahead, `RunError` when its logits are not finite.
    """
    device = torch.device(device)
    require_causal(model)
    longest = longest_sequence(model, sequences)
    levels, tensors = Levels(model, device), SequenceTensors(sequences, device)
    levels.calibrate(tensors)
    sizes = BatchSizes.within(memory_mb, levels.model, longest, device)
    transcript = Transcript(tensors, longest)

    def report() -> None:
        progress(transcript.num_done(), len(sequences))

    while True:
        try:
            Certifier(levels, transcript, sizes, tensors).run(report)
            Decoder(levels, transcript, sizes).run(report)
            return _generation(levels, transcript, sequences.tokens.dtype)
        except ToleranceTooSmall as failure:
            levels.raise_tolerance(failure)
            transcript.reopen(levels.tolerances)
        except torch.OutOfMemoryError:
            if not sizes.halve():
                raise


def longest_sequence(model: Transformer, sequences: SequenceSet) -> int:
    """Return how many tokens, EOS not counted, a generated sequence may have.

    It is the task's longest sequence, for which a `SequenceSet` has room, however many more the
    model could read: a chain longer than any valid one is wrong whatever follows.  A model that
    reads fewer, though every sequence drawn fits it, ends at its max_len.
    """
    needed = int(sequences.lengths.max()) - 1
    if needed > model.max_len:
        raise UserError(
            f"the longest of these sequences has {needed} tokens, but this model reads at most "
            f"max_len={model.max_len}; evaluate shorter sequences, or a model with room for them"
        )
    return min(sequences.tokens.shape[1] - 1, model.max_len)


def _generation(levels: Levels, transcript: Transcript, token_type: np.dtype) -> Generation:
    """Return the complete ``transcript``, on the host."""
    first_mistake = transcript.first_mistake.cpu().numpy()
    return Generation(
        tokens=transcript.tokens.cpu().numpy().astype(token_type),
        lengths=transcript.lengths.cpu().numpy(),
        first_mistake=first_mistake,
        certified=int((first_mistake < 0).sum()),
        close_calls=levels.close_calls,
        tolerance=levels.tolerances[SINGLE],
        largest_error=levels.largest_error,
    )
