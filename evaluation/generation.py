"""Exact generation: what free greedy generation would write, without generating most of it.

The generated token is *by definition* the arg-max of the model's float64 logits on the prefix,
the lowest token id among exact equals.  Everything here computes exactly that, in float32 where
float32 cannot be wrong:

1. **Certify.** One parallel forward pass over prompt + gold chain + answer + EOS.  If the arg-max
   equals the gold token at every target, free generation writes the gold sequence, token for
   token: by induction each prefix it would see is the gold prefix.
2. **Generate the rest** from each sequence's first mistake on (before it, generation equals the
   gold prefix), with the mixers' own state, finished rows leaving the batch.
3. **Close calls.** Where the two largest float32 logits lie closer than ``tolerance``, float32
   rounding could decide, so a float64 copy of the model decides instead, by a plain forward pass
   over the whole prefix.  ``tolerance`` is `SAFETY` times the largest float32 error seen on a
   sample of the test set itself, and every close call measures the error again: if one ever
   exceeds `GUARD` of the tolerance, that grows, and what it would have left open is done again.
4. **bfloat16 first, where it is quicker.** The certifying pass first looks in bfloat16, with a
   tolerance of its own, found and guarded in the same way; float32 looks again at the sequences
   it leaves open.  Where it leaves many open (an untrained model), it is given up.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from errors import RunError
from models.transformer import Transformer
from tasks.task import SequenceSet
from training.batches import Batch, SequenceTensors
from training.precision import autocast, resolve_precision

PAD_ID, EOS_ID = 0, 1
LARGEST_BATCH = {"cpu": 1024, "cuda": 8192}  # sequences generated together
CPU_MEMORY_MB = 1024.0
# Tolerance in multiples of the largest error of the sample: an arg-max can flip where the lead is
# below twice the error, so 16 stays right where the true maximum is eight times what the sample
# showed.  A tolerance as generous in bfloat16 would leave most sequences to float32.  There the
# sample is larger, and thousands of sequences are looked at again, whose errors keep the tolerance
# at three times the largest of them or more.
SAFETY, COARSE_SAFETY = 16.0, 4.0
CALIBRATION_ROWS, COARSE_CALIBRATION_ROWS = 16, 64
GUARD = (1 / 3, 1 / 2)  # share of the tolerance that no error may exceed, by level
MINIMUM_TOLERANCE = 1e-6
# Certifying 167-token sequences at D = 128 on one core takes 4.3 ms each in batches of 16 and 32,
# 6.4 in batches of 256: activations should fit the cache.
CPU_TOKENS_PER_BATCH = 4096
# Widths of certifying batches are rounded up to this: oneDNN keeps its compiled bfloat16 products,
# about 1 MB for every shape it meets, up to a thousand of them.
WIDTH_STEP = 8
# A generating batch is compacted, its state copied, once so few of its rows are unfinished.
COMPACT_BELOW = 0.75
# bfloat16 is given up when, after so many rows, it has left more than this share of them open.
COARSE_TRIAL_ROWS = 256
COARSE_OPEN_SHARE = 0.4
COARSE, SINGLE, EXACT = range(3)  # bfloat16, float32, float64
TO_CERTIFY, TO_GENERATE, DONE = range(3)  # what a sequence waits for


class _ToleranceTooSmall(Exception):
    """An error above `GUARD` of the tolerance was met; ``level`` is `COARSE` or `SINGLE`."""

    def __init__(self, level: int, error: float) -> None:
        super().__init__(error)
        self.level = level
        self.error = error


@dataclass
class Generation:
    """What greedy generation writes for each test sequence.

    ``tokens`` (N, W) holds prompt and generated tokens, padded; ``lengths`` (N,) counts both, EOS
    included when it was reached; ``first_mistake`` (N,) is the position in ``tokens`` of the
    first token that differs from gold, -1 where there is none.  ``close_calls`` counts the tokens
    that float64 was asked for, those of a batch that was done again included.
    """

    tokens: np.ndarray
    lengths: np.ndarray
    first_mistake: np.ndarray
    certified: int = 0
    close_calls: int = 0
    tolerance: float = 0.0
    largest_error: float = 0.0


def memory_for(setting: float | str, device: torch.device) -> float:
    """Return the megabytes that a number or ``auto`` means here.

    auto: `CPU_MEMORY_MB` on a CPU, half of what is free now on a GPU: each of several cells side
    by side leaves room for the next.
    """
    if setting != "auto":
        return float(setting)
    if device.type != "cuda":
        return CPU_MEMORY_MB
    torch.cuda.empty_cache()  # what this process keeps for later is free
    return torch.cuda.mem_get_info(device)[0] / 2**20 / 2


def generate(
    model: Transformer,
    sequences: SequenceSet,
    memory_mb: float = 1024,
    device: torch.device | str = "cpu",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Generation:
    """Return what greedy generation writes for the prompts of ``sequences`` (module docstring)."""
    engine = _Engine(model, sequences, memory_mb, torch.device(device), progress)
    coarse, single = engine.calibrate()
    floor = MINIMUM_TOLERANCE
    tolerances = [max(COARSE_SAFETY * coarse, floor), max(SAFETY * single, floor), 0.0]
    while True:
        try:
            return engine.run(tolerances)
        except _ToleranceTooSmall as failure:
            safety = COARSE_SAFETY if failure.level == COARSE else SAFETY
            tolerances[failure.level] = safety * failure.error
            engine.reopen(tolerances)
        except torch.OutOfMemoryError:
            if not engine.halve_batches():
                raise


@dataclass
class _Found:
    """What the levels of precision found out about a batch.

    ``choice`` (B, T): the arg-max at every target; ``least_lead`` (2, B): by level, the smallest
    lead in the row up to its first mistake, if that level decided it.
    """

    choice: Tensor
    least_lead: Tensor


class _Engine:
    """Certification and generation over one set of sequences."""

    def __init__(
        self,
        model: Transformer,
        sequences: SequenceSet,
        memory_mb: float,
        device: torch.device,
        progress: Callable[[int, int], None],
    ) -> None:
        self.model = model.to(device).float().eval()
        self.exact = copy.deepcopy(self.model).double()
        self.set = SequenceTensors(sequences, device)
        self.token_type = sequences.tokens.dtype
        self.device = device
        self.progress = progress
        self.max_len = model.max_len
        budget = memory_mb * 2**20
        floats_per_token = 16 * model.dim + 4 * model.head.out_features
        self.tokens_per_batch = max(1, int(budget / (4 * floats_per_token)))
        if device.type == "cpu":
            self.tokens_per_batch = min(self.tokens_per_batch, CPU_TOKENS_PER_BATCH)
        self.has_coarse = resolve_precision("auto", device, model.dim) == "bfloat16"
        bytes_per_row = 2 * model.state_bytes(self.max_len) + 4 * floats_per_token * self.max_len
        largest = LARGEST_BATCH.get(device.type, LARGEST_BATCH["cpu"])
        self.rows_per_batch = max(1, min(largest, int(budget / bytes_per_row)))
        self.close_calls, self.largest_error = 0, 0.0
        self._lay_out(sequences)

    def _lay_out(self, sequences: SequenceSet) -> None:
        """Nothing is written yet, and every sequence is to be certified."""
        count = len(sequences)
        self.tokens = self.set.tokens.new_full((count, self.max_len + 1), PAD_ID)
        self.lengths = torch.zeros(count, dtype=torch.long, device=self.device)
        self.first_mistake = torch.full((count,), -1, device=self.device)
        self.stage = torch.full((count,), TO_CERTIFY, device=self.device)
        # By level: the smallest lead by which it decided a token of the row that counts.
        self.least_lead = torch.full((2, count), math.inf, device=self.device)

    @torch.no_grad()
    def calibrate(self) -> tuple[float, float]:
        """Return bounds of the difference to float64 logits on a few sequences, of bfloat16 (0
        where it is not used; its largest difference to float32 plus float32's) and of float32.

        Raises `RunError` when the logits are not finite.
        """
        errors = [0.0, self._sampled_error(SINGLE, CALIBRATION_ROWS)]
        if self.has_coarse:
            errors[COARSE] = self._sampled_error(COARSE, COARSE_CALIBRATION_ROWS) + errors[SINGLE]
        if not all(math.isfinite(error) for error in errors):
            raise RunError("the model's logits are not finite; it cannot be evaluated")
        return errors[COARSE], errors[SINGLE]

    def _sampled_error(self, level: int, count: int) -> float:
        """Return the largest difference to the next finer level's logits on ``count`` rows."""
        rows = torch.linspace(0, len(self.set) - 1, min(count, len(self.set))).long()
        largest = 0.0
        for some in rows.to(self.device).split(CALIBRATION_ROWS):
            batch = self.set.batch(some)
            inputs, counted = batch.tokens[:, :-1], batch.loss_mask
            finer = self._logits(level + 1, inputs, counted)
            difference = self._logits(level, inputs, counted).double() - finer.double()
            largest = max(largest, float(difference.abs().nan_to_num(math.inf).max()))
        return largest

    def _logits(self, level: int, inputs: Tensor, counted: Tensor) -> Tensor:
        """Return the logits (targets, V) at ``counted`` (B, T), computed at ``level``."""
        if level == EXACT:
            return self.exact.head(self.exact.hidden(inputs)[counted])
        if level == SINGLE:
            return self.model.head(self.model.hidden(inputs)[counted])
        missing = self._width(inputs.shape[1]) - inputs.shape[1]
        with autocast("bfloat16", self.device):
            hidden = self.model.hidden(F.pad(inputs, (0, missing)))  # (B, T + missing, D)
        return self.model.head(hidden[F.pad(counted, (0, missing))].float())

    @torch.no_grad()
    def run(self, tolerances: list[float]) -> Generation:
        """Return the generation of every row; ``tolerances`` by level decide what is close."""
        self.tolerances = tolerances
        self.coarse_rows = self.coarse_open = 0
        self.first_level = COARSE if self.has_coarse else SINGLE
        for rows in self._certifying_batches():
            self._certify(rows)
            self._report()
        mistaken = torch.nonzero(self.stage == TO_GENERATE).flatten()
        order = mistaken[torch.argsort(self.first_mistake[mistaken])]
        for rows in order.split(self.rows_per_batch):
            self._generate(rows)
            self.stage[rows] = DONE
            self._report()
        return Generation(
            tokens=self.tokens.cpu().numpy().astype(self.token_type),
            lengths=self.lengths.cpu().numpy(),
            first_mistake=self.first_mistake.cpu().numpy(),
            certified=int((self.first_mistake < 0).sum()),
            close_calls=self.close_calls,
            tolerance=tolerances[SINGLE],
            largest_error=self.largest_error,
        )

    def _report(self) -> None:
        self.progress(int((self.stage == DONE).sum()), len(self.stage))

    def reopen(self, tolerances: list[float]) -> None:
        """Take back every row of which a token was decided by less than today's tolerance.

        What is left is what a run with these tolerances from the start would have decided: the
        other rows never came closer.
        """
        limits = torch.tensor(tolerances[:EXACT], device=self.device)[:, None]
        self.stage[(self.least_lead < limits).any(0)] = TO_CERTIFY

    def halve_batches(self) -> bool:
        """Hold half as much at a time; false when a batch is one sequence already."""
        if self.rows_per_batch == 1 and self.tokens_per_batch <= self.max_len:
            return False
        self.rows_per_batch = max(1, self.rows_per_batch // 2)
        self.tokens_per_batch = max(1, self.tokens_per_batch // 2)
        return True

    def _certifying_batches(self) -> list[Tensor]:
        """Cut the rows, sorted by length, into batches of bounded size and few shapes."""
        waiting = torch.nonzero(self.stage == TO_CERTIFY).flatten()
        order = waiting[torch.argsort(self.set.lengths[waiting])]
        widths = [self._width(length - 1) for length in self.set.lengths[order].tolist()]
        batches, start = [], 0
        for stop in range(1, len(order) + 1):
            if stop == len(order) or (stop + 1 - start) * widths[stop] > self.tokens_per_batch:
                batches.append(order[start:stop])
                start = stop
        return batches

    def _width(self, length: int) -> int:
        """Return the width of a bfloat16 batch whose longest input has ``length`` tokens."""
        return min(-(-length // WIDTH_STEP) * WIDTH_STEP, self.max_len)

    def _certify(self, rows: Tensor) -> None:
        """Find the first mistake of ``rows`` (B,) under teacher forcing."""
        batch = self.set.batch(rows)
        found = _Found(
            choice=torch.zeros_like(batch.tokens[:, 1:]),
            least_lead=self.least_lead.new_full((2, len(rows)), math.inf),
        )
        self._look(batch, torch.arange(len(rows), device=self.device), self.first_level, found)
        wrong = (found.choice != batch.tokens[:, 1:]) & batch.loss_mask  # (B, T)
        self.least_lead[:, rows] = found.least_lead
        self.tokens[rows] = PAD_ID
        self.tokens[rows, : batch.tokens.shape[1]] = batch.tokens.to(self.tokens.dtype)
        self.lengths[rows] = self.set.lengths[rows]
        self.first_mistake[rows] = -1
        self.stage[rows] = torch.where(wrong.any(1), TO_GENERATE, DONE)
        self._note_mistakes(rows, found.choice, wrong)

    def _look(self, batch: Batch, part: Tensor, level: int, found: _Found) -> Tensor:
        """Find the arg-maxes of rows ``part`` (b,) of ``batch``; return the logits (targets, V).

        Rows of which ``level`` cannot tell where they first go wrong are looked at again, one
        level finer.
        """
        inputs, targets = batch.tokens[part, :-1], batch.tokens[part, 1:]  # (b, T)
        counted = batch.loss_mask[part]
        logits = self._logits(level, inputs, counted)
        own = torch.zeros_like(targets)
        if level == EXACT:
            own[counted] = _lowest_argmax(logits)
            found.choice[part] = own
            return logits
        lead = logits.new_full(targets.shape, math.inf)
        own[counted], lead[counted] = _choose(logits)
        found.choice[part] = own
        least = _least_until(lead, _first((own != targets) & counted))  # (b,)
        decided = least >= self.tolerances[level]  # which no NaN is
        found.least_lead[level, part[decided]] = least[decided]
        if level == COARSE:
            self._judge_coarse(len(part), int((~decided).sum()))
        row_of_target = torch.nonzero(counted)[:, 0]
        for some in self._parts(torch.nonzero(~decided).flatten(), level + 1):
            finer = self._look(batch, part[some], level + 1, found)
            these = torch.isin(row_of_target, some)
            close_calls = int((lead[some] < self.tolerances[level]).sum())
            self._note_error(level, logits[these], finer, close_calls)
        return logits

    def _judge_coarse(self, rows: int, open_rows: int) -> None:
        """Give bfloat16 up where it decides little."""
        self.coarse_rows += rows
        self.coarse_open += open_rows
        if self.coarse_rows >= COARSE_TRIAL_ROWS:
            many = self.coarse_open > COARSE_OPEN_SHARE * self.coarse_rows
            self.first_level = SINGLE if many else COARSE

    def _note_mistakes(self, rows: Tensor, choice: Tensor, wrong: Tensor) -> None:
        """Put each row's first wrong token in its place and empty what follows."""
        mistaken = wrong.any(1)
        rows, place = rows[mistaken], _first(wrong)[mistaken]
        position = place + 1  # target t is token t + 1
        self.first_mistake[rows] = position
        self.lengths[rows] = position + 1
        columns = torch.arange(self.tokens.shape[1], device=self.device)
        self.tokens[rows] = self.tokens[rows].masked_fill(columns >= position[:, None], PAD_ID)
        written = choice[mistaken].gather(1, place[:, None]).flatten()
        self.tokens[rows, position] = written.to(self.tokens.dtype)

    def _generate(self, rows: Tensor) -> None:
        """Write on in ``rows`` (B,) from where they stand, to EOS or the longest sequence."""
        rows = rows[~self._ended(rows)]
        if not len(rows):
            return
        lengths = self.lengths[rows]
        logits, state = self.model.prefill(self.tokens[rows, : int(lengths.max())], lengths)
        token = torch.zeros_like(rows)
        live = torch.arange(len(rows), device=self.device)  # the rows of the batch still going
        while True:
            token[live] = self._decide(rows[live], logits[live])
            self.tokens[rows[live], self.lengths[rows[live]]] = token[live].to(self.tokens.dtype)
            self.lengths[rows[live]] += 1
            live = live[~self._ended(rows[live])]
            if not len(live):
                return
            if len(live) <= COMPACT_BELOW * len(rows):
                rows, token = rows[live], token[live]
                state = self.model.select(state, live)
                live = torch.arange(len(rows), device=self.device)
            # Finished rows run along, idle, at a position that exists; nobody reads their logits.
            positions = (self.lengths[rows] - 1).clamp(max=self.max_len - 1)
            logits = self.model.step(token, positions, state)  # (B, V)

    def _ended(self, rows: Tensor) -> Tensor:
        lengths = self.lengths[rows]
        return (self.tokens[rows, lengths - 1] == EOS_ID) | (lengths > self.max_len)

    def _decide(self, rows: Tensor, logits: Tensor) -> Tensor:
        """Return the next token of each row (B,) from its float32 ``logits`` (B, V)."""
        choice, lead = _choose(logits)
        decided = lead >= self.tolerances[SINGLE]  # which no NaN is
        least = self.least_lead[SINGLE, rows[decided]]
        self.least_lead[SINGLE, rows[decided]] = torch.minimum(least, lead[decided])
        close = torch.nonzero(~decided).flatten()
        for part in self._parts(close, EXACT):
            lengths = self.lengths[rows[part]]
            prefix = self.tokens[rows[part], : int(lengths.max())]
            every = torch.arange(len(part), device=self.device)
            last = self.exact.hidden(prefix)[every, lengths - 1]  # (b, D)
            exact_logits = self.exact.head(last)
            self._note_error(SINGLE, logits[part], exact_logits, len(part))
            choice[part] = _lowest_argmax(exact_logits)
        return choice

    def _parts(self, rows: Tensor, level: int) -> list[Tensor]:
        """Cut ``rows`` into batches for ``level``: the float64 model holds twice the memory."""
        size = max(1, self.rows_per_batch // 8) if level == EXACT else max(1, len(rows))
        return [part for part in rows.split(size) if len(part)]

    def _note_error(self, level: int, logits: Tensor, finer: Tensor, close_calls: int) -> None:
        """Hold the error of ``level`` against its tolerance."""
        error = float((logits.double() - finer.double()).abs().max())
        if level == SINGLE:
            self.close_calls += close_calls
            self.largest_error = max(self.largest_error, error)
        if not error <= GUARD[level] * self.tolerances[level]:
            if not math.isfinite(error):
                raise RunError("the model's logits are not finite; it cannot be evaluated")
            raise _ToleranceTooSmall(level, error)


def _choose(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return the arg-max and its lead over the runner-up, both of shape ``logits.shape[:-1]``."""
    top = logits.topk(2, dim=-1)
    return top.indices[..., 0], top.values[..., 0] - top.values[..., 1]


def _lowest_argmax(logits: Tensor) -> Tensor:
    """Return the lowest index that holds the maximum; `Tensor.argmax` promises no order."""
    ids = torch.arange(logits.shape[-1], device=logits.device)
    largest = logits.amax(-1, keepdim=True)
    return torch.where(logits == largest, ids, logits.shape[-1]).amin(-1)


def _least_until(lead: Tensor, last: Tensor) -> Tensor:
    """Return the minimum of each row of ``lead`` (B, T) over columns up to ``last`` (B,)."""
    columns = torch.arange(lead.shape[1], device=lead.device)
    return lead.masked_fill(columns > last[:, None], math.inf).amin(1)


def _first(mask: Tensor) -> Tensor:
    """Return for each row of ``mask`` (B, T) the first true column, T where there is none."""
    columns = torch.arange(mask.shape[1], device=mask.device)
    return torch.where(mask, columns, mask.shape[1]).amin(1)
