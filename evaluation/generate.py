"""Exact generation: what free greedy generation would write, without generating most of it.

The generated token is *by definition* the arg-max of the model's float64 logits on the prefix; two
float64 logits closer than 1e-9 are a tie, which the lowest token id wins (`exact_argmax`).
Everything here computes exactly that, whatever the batch, in float32 where float32 cannot be wrong
as far as its measured error tells:

1. **Certify.** One parallel forward pass over prompt + gold chain + answer + EOS.  If the arg-max
   equals the gold token at every target, free generation writes the gold sequence, token for
   token: by induction each prefix it would see is the gold prefix.
2. **Decode** from each sequence's first mistake on (before it, generation equals the gold prefix),
   with the mixers' own state, finished rows leaving the batch.
3. **Close calls.** Where the two largest float32 logits lie closer than the tolerance, a float64
   copy of the model decides, by a plain forward pass over the whole prefix.  The tolerance is
   empirical: 16 times the largest float32 error on a sample of the set itself, not a bound.  Every
   close call measures the error again, and one that takes up half of the tolerance raises it and
   starts again.  (Looking in bfloat16 before float32 gained nothing: 0.92 to 1.11 times as fast,
   whole evaluations at D = 64 on one core of an EPYC.)
4. **Check.** Some of the decoded sequences are read by one float64 forward pass: a `step` that
   computes something else than `forward` is refused, not measured.

Labels (`tag`) are the arg-maxes of one pass, decided in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from common import RunError, UserError
from models.exact import exact_copy, require_causal
from models.transformer import Transformer
from tasks.task import EOS_ID, PAD_ID, SequenceSet
from training.data import Batch, SequenceTensors

TIE = 1e-9
# An arg-max can flip where the lead is below twice the error, so 16 stays right where the true
# maximum is eight times what the sample showed.
SAFETY = 16.0  # tolerance in multiples of the sampled error
GUARD = 1 / 2  # share of the tolerance that no error may exceed
MINIMUM_TOLERANCE = 1e-6  # a thousand times `TIE`
SAMPLED_ROWS = 16
CHECKED_ROWS = 64
FALSE_STEP = 1e-2  # error of `step`, relative to the largest logit, that no rounding explains

LARGEST_BATCH = {"cpu": 1024, "cuda": 8192}  # sequences generated together
CPU_MEMORY_MB = 1024.0
# Certifying 167-token sequences at D = 128 on one core takes 4.3 ms each in batches of 16 and 32,
# 6.4 in batches of 256: activations should fit the cache.
CPU_TOKENS_PER_BATCH = 4096
COMPACT_BELOW = 0.75  # a batch is compacted, its state copied, once so few rows are unfinished

Progress = Callable[[int, int], None]  # called with (sequences done, sequences in all)
Result = TypeVar("Result")


@dataclass
class Generation:
    """What greedy generation writes for each of N sequences.

    ``tokens`` (N, W) holds prompt and generated tokens, padded; ``lengths`` (N,) counts both, EOS
    included when it was reached; ``first_mistake`` (N,) is the position in ``tokens`` of the
    first token that differs from gold, -1 where there is none.  ``certified`` counts the sequences
    without a mistake; ``close_calls`` the tokens that float64 was asked for, those that were done
    again included; ``tolerance`` is the lead, in logits, from which float32 decides.
    """

    tokens: np.ndarray
    lengths: np.ndarray
    first_mistake: np.ndarray
    certified: int = 0
    close_calls: int = 0
    tolerance: float = 0.0


@dataclass
class Tagging:
    """What a model says at the labelled tokens of N sequences.

    ``labels`` (N, W) are laid out as `SequenceSet.labels`.  ``certified`` counts the sequences
    without a mistake; ``close_calls`` and ``tolerance`` are as in `Generation`.
    """

    labels: np.ndarray
    certified: int
    close_calls: int
    tolerance: float


@torch.no_grad()
def generate(
    model: Transformer,
    sequences: SequenceSet,
    memory_mb: float | Literal["auto"] = "auto",
    device: torch.device | str = "cpu",
    progress: Progress = lambda done, total: None,
) -> Generation:
    """Return what greedy generation writes for the prompts of ``sequences``.

    A sequence ends with EOS, or once it is longer than `longest_sequence`.  ``memory_mb`` bounds
    what a batch holds, which is halved where the device has less (`megabytes`).  The model is left
    on ``device``, in float32 and in evaluation mode.  Raises `UserError` for sequences longer than
    the model's max_len and for a mixer that looks ahead, `RunError` when the logits are not finite
    or `step` is not the model's forward pass.
    """
    exact, tensors = _prepared(model, sequences, memory_mb, device)

    def write() -> Text:
        text = Text(tensors, exact.sizes.longest)
        certify(exact, tensors, text, lambda done: progress(done, len(sequences)))
        certified = int((text.first_mistake < 0).sum())
        decode(exact, text, lambda done: progress(certified + done, len(sequences)))
        check_steps(exact, text)
        return text

    text = exact.with_enough_tolerance(write)
    first_mistake = text.first_mistake.cpu().numpy()
    return Generation(
        tokens=text.tokens.cpu().numpy().astype(sequences.tokens.dtype),
        lengths=text.lengths.cpu().numpy(),
        first_mistake=first_mistake,
        certified=int((first_mistake < 0).sum()),
        close_calls=exact.close_calls,
        tolerance=exact.tolerance,
    )


@torch.no_grad()
def tag(
    model: Transformer,
    sequences: SequenceSet,
    memory_mb: float | Literal["auto"] = "auto",
    device: torch.device | str = "cpu",
    progress: Progress = lambda done, total: None,
) -> Tagging:
    """Return what the model says at each labelled token; arguments and errors of `generate`."""
    exact, tensors = _prepared(model, sequences, memory_mb, device)

    def write() -> Tensor:
        labels, done = torch.zeros_like(tensors.targets), 0  # (N, W)

        def write_labels(rows: Tensor) -> None:
            batch = tensors.batch(rows)
            said = batch.spread(exact.at_targets(batch)).to(labels.dtype)  # (B, T)
            labels[rows, 1 : 1 + said.shape[1]] = said

        for rows in exact.sizes.certified_together(tensors.host_lengths):
            in_halves(write_labels, rows)
            progress(done := done + len(rows), len(sequences))
        return labels

    labels = exact.with_enough_tolerance(write)
    certified = int((labels == tensors.targets).all(1).sum())
    written = labels.cpu().numpy().astype(sequences.tokens.dtype)
    return Tagging(written, certified, exact.close_calls, exact.tolerance)


def _prepared(
    model: Transformer,
    sequences: SequenceSet,
    memory_mb: float | Literal["auto"],
    device: torch.device | str,
) -> tuple[ExactArgmax, SequenceTensors]:
    """Check that ``model`` is causal and reads ``sequences``; set the tolerance by them."""
    device = torch.device(device)
    require_causal(model)
    longest = longest_sequence(model, sequences)
    sizes = BatchSizes.within(megabytes(memory_mb, device), model, longest, device)
    exact, tensors = ExactArgmax(model, device, sizes), SequenceTensors(sequences, device)
    exact.calibrate(tensors)
    return exact, tensors


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


def exact_argmax(logits: Tensor) -> Tensor:
    """Return the generated token of each row of float64 ``logits`` (..., V): the arg-max, where
    logits closer than `TIE` to the largest (absolute) are tied with it and the lowest id wins.

    Without a margin for ties, two equal rows of the head would leave the token to the rounding of
    a sum, which changes with the batch it is computed in: about 1e-13 for logits in the hundreds.
    A lead within such a rounding of `TIE` itself is still open to it, but no structure of a model
    makes one.
    """
    ids = torch.arange(logits.shape[-1], device=logits.device)
    tied = logits.amax(-1, keepdim=True) - logits < TIE
    return torch.where(tied, ids, logits.shape[-1]).amin(-1)


def argmax_and_lead(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return the arg-max and its lead over the runner-up, both of shape ``logits.shape[:-1]``."""
    top = logits.topk(2, dim=-1)
    return top.indices[..., 0], top.values[..., 0] - top.values[..., 1]


class ToleranceTooSmall(Exception):
    """A float32 ``error``, in logits, that the tolerance does not allow for."""

    def __init__(self, error: float) -> None:
        super().__init__(error)
        self.error = error


class ExactArgmax:
    """The arg-max of a model's float64 logits, found in float32 where that is safe.

    ``tolerance`` (in logits) is the lead from which float32 decides; ``close_calls`` the tokens
    for which float64 was asked.
    """

    def __init__(self, model: Transformer, device: torch.device, sizes: BatchSizes) -> None:
        self.model = model.to(device).float().eval()
        self.exact = exact_copy(self.model)
        self.sizes = sizes
        self.tolerance, self.close_calls = 0.0, 0

    def calibrate(self, sequences: SequenceTensors) -> None:
        """Set the tolerance from errors on a sample; `RunError` when logits are not finite."""
        error = self.sampled_error(sequences)
        if not math.isfinite(error):
            raise RunError("the model's logits are not finite; it cannot be evaluated")
        self.tolerance = max(SAFETY * error, MINIMUM_TOLERANCE)

    def sampled_error(self, sequences: SequenceTensors) -> float:
        """Return the largest difference of float32 and float64 logits on a few sequences."""
        count = min(SAMPLED_ROWS, len(sequences))
        largest = 0.0

        def look(rows: Tensor) -> None:
            nonlocal largest
            batch = sequences.batch(rows)
            single, exact = (
                model.head(batch.at_targets(model.hidden(batch.inputs)))
                for model in (self.model, self.exact)
            )  # (targets, V)
            largest = max(largest, float((single - exact).abs().nan_to_num(math.inf).max()))

        for rows in self.sizes.float64_together(
            torch.linspace(0, len(sequences) - 1, count).long()
        ):
            in_halves(look, rows)
        return largest

    def with_enough_tolerance(self, work: Callable[[], Result]) -> Result:
        """Return what ``work`` returns; where the tolerance was too small, raise it and repeat."""
        while True:
            try:
                return work()
            except ToleranceTooSmall as failure:
                self.tolerance = max(SAFETY * failure.error, 2 * self.tolerance)

    def at_targets(self, batch: Batch, until_mistake: bool = False) -> Tensor:
        """Return the arg-max at every target of ``batch``, (targets,).

        With ``until_mistake``, those of a row are sure up to its first that is not the target.
        """
        width = batch.inputs.shape[1]
        row, column = batch.counted // width, batch.counted % width  # (targets,)
        logits = self.model.head(batch.at_targets(self.model.hidden(batch.inputs)))
        choice, lead = argmax_and_lead(logits)  # (targets,)
        close = ~(lead >= self.tolerance)  # a NaN is no lead
        matters = close
        if until_mistake:
            matters = close & (column <= first_true(batch.spread(choice != batch.targets))[row])
        for rows in self.sizes.float64_together(row[matters].unique()):
            here = torch.isin(row, rows)
            hidden = self.exact.hidden(batch.inputs[rows]).flatten(0, 1)  # (b * T, D)
            counted = torch.searchsorted(rows, row[here]) * width + column[here]
            exact_logits = self.exact.head(hidden.index_select(0, counted))
            self.check_error(logits[here], exact_logits, int(close[here].sum()))
            choice[here] = exact_argmax(exact_logits)
        return choice

    def after(self, text: Text, rows: Tensor, logits: Tensor) -> Tensor:
        """Return the next token of ``rows`` (B,) of ``text``, whose `step` gave ``logits``."""
        choice, lead = argmax_and_lead(logits)
        for part in self.sizes.float64_together(torch.nonzero(~(lead >= self.tolerance)).flatten()):
            lengths = text.lengths[rows[part]]
            prefix = text.tokens[rows[part], : int(lengths.max())]
            last = torch.arange(len(part), device=rows.device), lengths - 1
            exact_logits = self.exact.head(self.exact.hidden(prefix)[last])  # (b, V)
            self.check_error(logits[part], exact_logits, len(part), of_step=True)
            choice[part] = exact_argmax(exact_logits)
        return choice

    def check_error(
        self, logits: Tensor, exact: Tensor, close_calls: int, of_step: bool = False
    ) -> None:
        """Hold float32 ``logits`` (n, V) against the ``exact`` ones; count ``close_calls``.

        Raises `ToleranceTooSmall`; `RunError` when logits are not finite or `step` is false.
        """
        error = float((logits - exact).abs().max())
        self.close_calls += close_calls
        if not math.isfinite(error):
            raise RunError("the model's logits are not finite; it cannot be evaluated")
        if of_step:
            self.refuse_false_step(error, exact)
        # Within it, a lead of the tolerance is one of more than `TIE` in the exact logits.
        if error > GUARD * (self.tolerance - TIE):
            raise ToleranceTooSmall(error)

    def refuse_false_step(self, error: float, exact: Tensor) -> None:
        """Raise `RunError` where no rounding explains the ``error`` of `step`, in logits."""
        if error > max(self.tolerance, FALSE_STEP * float(exact.abs().max())):
            raise RunError(
                f"`step` does not continue what `forward` computes: their logits differ by "
                f"{error:.2g}; a mixer's `prefill` or `step` is wrong"
            )


class Text:
    """The tokens written for N sequences, on the device of ``sequences``.

    ``tokens`` (N, ``longest`` + 1): prompt and what is written, padded; ``lengths`` (N,) counts
    both; ``first_mistake`` (N,): position of the first token that is not gold, -1 where there is
    none.
    """

    def __init__(self, sequences: SequenceTensors, longest: int) -> None:
        count, device = len(sequences), sequences.tokens.device
        self.longest = longest
        self.tokens = sequences.tokens.new_full((count, longest + 1), PAD_ID)
        self.lengths = torch.zeros(count, dtype=torch.long, device=device)
        self.first_mistake = torch.full((count,), -1, device=device)

    def ended(self, rows: Tensor) -> Tensor:
        """Return which of ``rows`` (B,) end in EOS or are longer than any valid sequence."""
        lengths = self.lengths[rows]
        return (self.tokens[rows, lengths - 1] == EOS_ID) | (lengths > self.longest)

    def write_gold(self, rows: Tensor, tokens: Tensor, lengths: Tensor) -> None:
        """Write gold sequences ``tokens`` (B, W) of ``lengths`` (B,) into ``rows`` (B,)."""
        self.tokens[rows, : tokens.shape[1]] = tokens
        self.lengths[rows] = lengths

    def end_in_mistake(self, rows: Tensor, position: Tensor, token: Tensor) -> None:
        """Put a first wrong ``token`` (B,) at ``position`` (B,), and nothing after it."""
        columns = torch.arange(self.tokens.shape[1], device=self.tokens.device)
        self.tokens[rows] = self.tokens[rows].masked_fill(columns >= position[:, None], PAD_ID)
        self.tokens[rows, position] = token.to(self.tokens.dtype)
        self.lengths[rows] = position + 1
        self.first_mistake[rows] = position

    def append(self, rows: Tensor, token: Tensor) -> None:
        """Write one more ``token`` (B,) in each of ``rows`` (B,)."""
        self.tokens[rows, self.lengths[rows]] = token.to(self.tokens.dtype)
        self.lengths[rows] += 1


def certify(
    exact: ExactArgmax, sequences: SequenceTensors, text: Text, report: Callable[[int], None]
) -> None:
    """Write each gold sequence up to the first token that the model says instead, or whole.

    ``report`` hears after each batch how many sequences are certified.
    """

    def write(rows: Tensor) -> None:
        batch, width = sequences.batch(rows), sequences.width(rows) + 1
        choice = exact.at_targets(batch, until_mistake=True)  # (targets,)
        wrong = batch.spread(choice != batch.targets)  # (B, T)
        rows = rows.to(text.tokens.device)
        text.write_gold(rows, sequences.tokens[rows, :width], sequences.lengths[rows])
        mistaken = torch.nonzero(wrong.any(1)).flatten()
        target = first_true(wrong)[mistaken]
        token = batch.spread(choice)[mistaken, target]
        text.end_in_mistake(rows[mistaken], target + 1, token)  # target t is token t + 1

    for rows in exact.sizes.certified_together(sequences.host_lengths):
        in_halves(write, rows)
        report(int(((text.lengths > 0) & (text.first_mistake < 0)).sum()))


def decode(exact: ExactArgmax, text: Text, report: Callable[[int], None]) -> None:
    """Write on in every row of ``text`` that has left the gold sequence, token after token.

    ``report`` hears after each batch how many rows are complete.
    """
    mistaken, done = torch.nonzero(text.first_mistake >= 0).flatten(), 0
    order = mistaken[torch.argsort(text.first_mistake[mistaken])]
    for rows in order.split(exact.sizes.rows):
        in_halves(lambda some: complete(exact, text, some), rows)
        report(done := done + len(rows))


def complete(exact: ExactArgmax, text: Text, rows: Tensor) -> None:
    """Write on in ``rows`` (B,) from where they stand, to EOS or the longest sequence."""
    model = exact.model
    rows = rows[~text.ended(rows)]
    if not len(rows):
        return
    lengths = text.lengths[rows]
    logits, state = model.prefill(text.tokens[rows, : int(lengths.max())], lengths)
    token = torch.zeros_like(rows)
    live = torch.arange(len(rows), device=rows.device)  # the rows of the batch still going
    while True:
        token[live] = exact.after(text, rows[live], logits[live])
        text.append(rows[live], token[live])
        live = live[~text.ended(rows[live])]
        if not len(live):
            return
        if len(live) <= COMPACT_BELOW * len(rows):
            rows, token, state = rows[live], token[live], model.select(state, live)
            live = torch.arange(len(rows), device=rows.device)
        # Finished rows run along, idle, at a position that exists; nobody reads their logits.
        positions = (text.lengths[rows] - 1).clamp(max=text.longest - 1)
        logits = model.step(token, positions, state)  # (B, V)


def check_steps(exact: ExactArgmax, text: Text) -> None:
    """Read `CHECKED_ROWS` of the decoded sequences by float64 forward passes.

    Raises `RunError` where they would have been written otherwise, `ToleranceTooSmall` where
    rounding can be the reason.
    """
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

    for rows in exact.sizes.float64_together(decoded[sample]):
        in_halves(look, rows)


@dataclass
class BatchSizes:
    """The largest batches: ``tokens`` of one that is certified, ``rows`` of one that is decoded;
    no sequence has more than ``longest`` tokens."""

    tokens: int
    rows: int
    longest: int

    @classmethod
    def within(
        cls, memory_mb: float, model: Transformer, longest: int, device: torch.device
    ) -> BatchSizes:
        """Return what ``memory_mb`` allows; a batch of one sequence always."""
        budget = memory_mb * 2**20
        bytes_per_token = 4 * (16 * model.dim + 4 * model.head.out_features)
        tokens = max(1, int(budget / bytes_per_token))
        if device.type == "cpu":
            tokens = min(tokens, CPU_TOKENS_PER_BATCH)
        # Mixers may hold their state for max_len tokens at once, and compacting copies it.
        bytes_per_row = 2 * model.state_bytes(model.max_len) + bytes_per_token * longest
        most = LARGEST_BATCH.get(device.type, LARGEST_BATCH["cpu"])
        return cls(tokens, max(1, min(most, int(budget / bytes_per_row))), longest)

    def certified_together(self, lengths: Tensor) -> list[Tensor]:
        """Cut the rows of ``lengths`` (N,), sorted by length, into batches."""
        order = torch.argsort(lengths)
        widths = (lengths[order] - 1).tolist()
        batches, start = [], 0
        for stop in range(1, len(order) + 1):
            if stop == len(order) or (stop + 1 - start) * widths[stop] > self.tokens:
                batches.append(order[start:stop])
                start = stop
        return batches

    def float64_together(self, rows: Tensor) -> list[Tensor]:
        """Cut ``rows`` into batches for whole forward passes of the float64 model."""
        return [part for part in rows.split(max(1, self.rows // 8)) if len(part)]


def megabytes(memory_mb: float | Literal["auto"], device: torch.device) -> float:
    """Return the megabytes that a number or ``auto`` means here.

    auto: `CPU_MEMORY_MB` on a CPU, half of what is free now on a GPU, so that each of several
    cells side by side leaves room for the next.
    """
    if memory_mb != "auto":
        return float(memory_mb)
    if device.type != "cuda":
        return CPU_MEMORY_MB
    torch.cuda.empty_cache()  # what this process keeps for later is free
    return torch.cuda.mem_get_info(device)[0] / 2**20 / 2


def in_halves(work: Callable[[Tensor], None], rows: Tensor) -> None:
    """Call ``work`` on ``rows`` (B,), or on halves of them where they do not fit into memory."""
    try:
        return work(rows)
    except torch.OutOfMemoryError:
        if len(rows) == 1:
            raise
    for half in rows.chunk(2):
        in_halves(work, half)
    return None


def first_true(mask: Tensor) -> Tensor:
    """Return for each row of ``mask`` (B, T) the first true column, T where there is none."""
    columns = torch.arange(mask.shape[1], device=mask.device)
    return torch.where(mask, columns, mask.shape[1]).amin(1)
