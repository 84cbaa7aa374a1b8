"""Exact greedy generation, mostly without decoding.

The generated token is *by definition* the arg-max of the model's float64 logits on the prefix; two
logits closer than 1e-9 are a tie, won by the lowest token id (`argmax.exact_argmax`). This module
computes exactly that, for any batching, in float32 where float32 is safe by its measured error:

1. **Certify.** One parallel forward pass over prompt + gold chain + answer + EOS. If the arg-max is
the gold token at every target, greedy generation writes the gold sequence, by induction on
prefixes.

2. **Decode** from each sequence's first mistake on, with the mixers' own state; finished rows leave
the batch.

3. **Close calls.** Where the two largest float32 logits are closer than the tolerance, a float64
copy decides by a plain forward pass over the prefix. The tolerance is empirical, 16 times the
largest float32 error on a sample. Each close call measures the error again; if it exceeds half the
tolerance, the tolerance is raised and everything is redone.

4. **Check.** Some decoded sequences are read by a float64 forward pass: a `step` that computes
something other than `forward` is an error.

Labels (`predict_labels`) are the arg-maxes of one pass, decided in the same way.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from evaluation.argmax import (
    SAFETY,
    TIE,
    ExactArgmax,
    Memory,
    ToleranceTooSmall,
    first_true,
    halve_on_oom,
)
from evaluation.state_format import StateRounding, generate_rounded
from models.transformer import Transformer
from tasks.sequences import EOS_ID, PAD_ID, SequenceSet
from training.data import SequenceTensors

CHECKED_ROWS = 64
COMPACT_BELOW = 0.75  # a batch is compacted once fewer rows than this share are unfinished

Progress = Callable[[int, int], None]  # called with (sequences done, sequences in all)
Result = TypeVar("Result")


@dataclass
class Generation:
    """The greedy generations of N sequences.

    `tokens` (N, W): prompt and generated tokens, padded; `lengths` (N,) counts both, with EOS if
    reached; `first_mistake` (N,): position of the first token that is not gold, -1 for none;
    `tolerance`: the lead, in logits, from which float32 decided. With labels, `tokens` are the
    model's labels (N, W) as in `SequenceSet`.
    """

    tokens: np.ndarray
    lengths: np.ndarray
    first_mistake: np.ndarray
    tolerance: float = 0.0


@torch.no_grad()
def generate(
    model: Transformer,
    sequences: SequenceSet,
    memory_mb: Memory = "auto",
    device: torch.device | str = "cpu",
    progress: Progress = lambda done, total: None,
    rounding: StateRounding | None = None,
) -> Generation:
    """Greedy generations after the prompts of `sequences`.

    A sequence ends with EOS, or once longer than `argmax.longest_sequence`. `memory_mb` bounds a
    batch (`argmax.megabytes`); a batch that does not fit is halved. The model is left on `device`,
    in float32 and evaluation mode. Raises what `ExactArgmax` raises, and RunError if `step`
    disagrees with `forward`. With a `rounding`, the state is rounded after every token, and float32
    decides (`state_format`).
    """
    if rounding is not None:
        text, output = generate_rounded(model, sequences, rounding, memory_mb, device, progress)
        return _rounded(sequences, text, output)
    exact, total = ExactArgmax(model, sequences, memory_mb, device), len(sequences)

    def report(done: int) -> None:
        progress(done, total)

    if sequences.labels is None:
        return _exact_text(exact, report)
    labels = with_enough_tolerance(exact, lambda: predict_labels(exact, report))
    first = first_difference(labels, sequences.labels)
    return Generation(labels, sequences.lengths, first, exact.tolerance)


def _rounded(sequences: SequenceSet, text: np.ndarray, output: np.ndarray) -> Generation:
    """The generation of `generate_rounded`: `text` and the arg-maxes `output`, both (N, W)."""
    width, ends = text.shape[1], text == EOS_ID
    if sequences.labels is None:
        lengths = np.where(ends.any(1), ends.argmax(1) + 1, width)
        return Generation(text, lengths, first_difference(text, sequences.tokens))
    labels = np.zeros_like(sequences.labels)
    labels[:, :width] = output * (sequences.labels[:, :width] != 0)
    return Generation(labels, sequences.lengths, first_difference(labels, sequences.labels))


def _exact_text(exact: ExactArgmax, report: Callable[[int], None]) -> Generation:
    def write() -> TextBuffer:
        text = TextBuffer(exact.sequences, exact.longest)
        certify(exact, text, report)
        certified = int((text.first_mistake < 0).sum())
        decode(exact, text, lambda done: report(certified + done))
        check_steps(exact, text)
        return text

    found = with_enough_tolerance(exact, write)
    tokens, lengths, first = (
        x.cpu().numpy() for x in (found.tokens, found.lengths, found.first_mistake)
    )
    return Generation(tokens, lengths, first, exact.tolerance)


def first_difference(written: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """The first column in which rows (N, w) of `written` and (N, W) of `gold` differ, or -1."""
    wrong = written != gold[:, : written.shape[1]]
    return np.where(wrong.any(1), wrong.argmax(1), -1)


def predict_labels(exact: ExactArgmax, report: Callable[[int], None]) -> np.ndarray:
    """The label at every target, in one pass; (N, W) as in `SequenceSet`."""
    labels, done = torch.zeros_like(exact.sequences.targets), 0

    def write(rows: Tensor) -> None:
        batch = exact.sequences.batch(rows)
        predicted = batch.spread(exact.at_targets(batch)).to(labels.dtype)  # (B, T)
        labels[rows, 1 : 1 + predicted.shape[1]] = predicted

    for rows in exact.batches():
        halve_on_oom(write, rows)
        report(done := done + len(rows))
    return labels.cpu().numpy()


def with_enough_tolerance(exact: ExactArgmax, work: Callable[[], Result]) -> Result:
    """Call `work`, again with a larger tolerance whenever it was too small."""
    while True:
        try:
            return work()
        except ToleranceTooSmall as failure:
            exact.tolerance = max(SAFETY * failure.args[0], 2 * exact.tolerance)


class TextBuffer:
    """The tokens written for N sequences, on their device.

    `tokens` (N, `longest` + 1): prompt and generated tokens, padded; `lengths` (N,) counts both;
    `first_mistake` (N,): position of the first token that is not gold, -1 for none.
    """

    def __init__(self, sequences: SequenceTensors, longest: int) -> None:
        count, device = len(sequences), sequences.tokens.device
        self.longest = longest
        self.tokens = sequences.tokens.new_full((count, longest + 1), PAD_ID)
        self.lengths = torch.zeros(count, dtype=torch.long, device=device)
        self.first_mistake = torch.full((count,), -1, device=device)

    def ended(self, rows: Tensor) -> Tensor:
        """Which of `rows` (B,) end in EOS or are longer than any valid sequence."""
        lengths = self.lengths[rows]
        return (self.tokens[rows, lengths - 1] == EOS_ID) | (lengths > self.longest)

    def append(self, rows: Tensor, token: Tensor) -> None:
        self.tokens[rows, self.lengths[rows]] = token.to(self.tokens.dtype)
        self.lengths[rows] += 1


def certify(exact: ExactArgmax, text: TextBuffer, report: Callable[[int], None]) -> None:
    """Write each gold sequence up to the first token at which the model differs. `report` is called
    after each batch with the number of certified sequences."""
    sequences = exact.sequences

    def write(rows: Tensor) -> None:
        batch, width = sequences.batch(rows), sequences.width(rows) + 1
        choice = exact.at_targets(batch, until_mistake=True)  # (targets,)
        wrong = batch.spread(choice != batch.targets)  # (B, T)
        rows = rows.to(text.tokens.device)
        mistaken = torch.nonzero(wrong.any(1)).flatten()
        target = first_true(wrong)[mistaken]
        text.lengths[rows] = sequences.lengths[rows]
        text.lengths[rows[mistaken]] = text.first_mistake[rows[mistaken]] = target + 1
        columns = torch.arange(width, device=rows.device)
        kept = columns < text.lengths[rows, None]
        text.tokens[rows, :width] = sequences.tokens[rows, :width].where(kept, PAD_ID)
        text.append(rows[mistaken], batch.spread(choice)[mistaken, target])

    for rows in exact.batches():
        halve_on_oom(write, rows)
        report(int(((text.lengths > 0) & (text.first_mistake < 0)).sum()))


def decode(exact: ExactArgmax, text: TextBuffer, report: Callable[[int], None]) -> None:
    """Generate token by token in every row of `text` that differs from gold. `report` is called
    after each batch with the number of complete rows."""
    mistaken, done = torch.nonzero(text.first_mistake >= 0).flatten(), 0
    order = mistaken[torch.argsort(text.first_mistake[mistaken])]
    for rows in order.split(exact.most_rows):
        halve_on_oom(lambda some: decode_rows(exact, text, some), rows)
        report(done := done + len(rows))


def decode_rows(exact: ExactArgmax, text: TextBuffer, rows: Tensor) -> None:
    model = exact.model
    rows = rows[~text.ended(rows)]
    if not len(rows):
        return
    lengths = text.lengths[rows]
    logits, state = model.prefill(text.tokens[rows, : int(lengths.max())], lengths)
    token = torch.zeros_like(rows)
    live = torch.arange(len(rows), device=rows.device)  # the rows of the batch still going
    while True:
        going = rows[live]
        token[live] = exact.next_token(text.tokens, text.lengths, going, logits[live])
        text.append(going, token[live])
        live = live[~text.ended(going)]
        if not len(live):
            return
        if len(live) <= COMPACT_BELOW * len(rows):
            rows, token, state = rows[live], token[live], model.select(state, live)
            live = torch.arange(len(rows), device=rows.device)
        # Finished rows keep running at a valid position; their logits are ignored.
        positions = (text.lengths[rows] - 1).clamp(max=text.longest - 1)
        logits = model.step(token, positions, state)  # (B, V)


def check_steps(exact: ExactArgmax, text: TextBuffer) -> None:
    """Reread `CHECKED_ROWS` decoded sequences by float64 forward passes. RunError if they differ,
    `ToleranceTooSmall` if rounding can be the reason."""
    decoded = torch.nonzero(text.first_mistake >= 0).flatten()
    count = min(CHECKED_ROWS, len(decoded))
    sample = torch.linspace(0, len(decoded) - 1, count, device=decoded.device).long()

    def look(rows: Tensor) -> None:
        lengths = text.lengths[rows, None]  # (b, 1)
        tokens = text.tokens[rows, : int(lengths.max())].long()  # (b, T + 1)
        logits = exact.exact(tokens[:, :-1])  # (b, T, V)
        written = logits.gather(-1, tokens[:, 1:, None])[..., 0]  # (b, T)
        position = torch.arange(1, tokens.shape[1], device=rows.device)
        counted = (position > text.first_mistake[rows, None]) & (position < lengths)
        behind = float(((logits.amax(-1) - written) * counted).max())
        exact.refuse_false_step(behind, logits)
        if behind > 2 * TIE:
            raise ToleranceTooSmall(behind)

    exact.in_float64(look, decoded[sample])
