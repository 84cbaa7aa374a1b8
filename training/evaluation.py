"""Exact evaluation: what free greedy generation would write, without generating most of it.

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
   exceeds half the tolerance, evaluation starts over with a larger one.
4. **bfloat16 first, where it is quicker.** The certifying pass first looks in bfloat16, with a
   tolerance of its own, found and guarded in the same way; float32 looks again at the sequences
   it leaves open.  Where it leaves many open (an untrained model), it is given up.
"""

from __future__ import annotations

import copy
import hashlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from errors import RunError
from models.transformer import Transformer
from tasks.task import SequenceSet, Task
from training.batches import Batch, SequenceTensors
from training.files import write_atomically
from training.precision import autocast, resolve_precision

PAD_ID, EOS_ID = 0, 1
LARGEST_BATCH = 1024
STEP_SAMPLE = 2000
# An evaluation that may be cut off keeps what it has after so many sequences.
PART = 10_000
# Tolerance in multiples of the largest error seen: an arg-max can flip where the lead is below
# twice the error, so 16 stays right where the true maximum is eight times what the sample showed.
# In bfloat16 eight samples of sixteen sequences differed less than twofold, so 8 leaves room.
SAFETY, COARSE_SAFETY = 16.0, 8.0
CALIBRATION_ROWS = 16
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


class _ToleranceTooSmall(Exception):
    """An error above half the tolerance was met; ``level`` is `COARSE` or `SINGLE`."""

    def __init__(self, level: int, error: float) -> None:
        super().__init__(error)
        self.level = level
        self.error = error


@dataclass
class Generation:
    """What greedy generation writes for each test sequence.

    ``tokens`` (N, W) holds prompt and generated tokens, padded; ``lengths`` (N,) counts both, EOS
    included when it was reached; ``first_mistake`` (N,) is the position in ``tokens`` of the
    first token that differs from gold, -1 where there is none.
    """

    tokens: np.ndarray
    lengths: np.ndarray
    first_mistake: np.ndarray
    certified: int = 0
    close_calls: int = 0
    tolerance: float = 0.0
    largest_error: float = 0.0


@dataclass
class Evaluation:
    """The result of one evaluation; see `judge` for the meaning of the two accuracies."""

    answer_accuracy: float
    answer_accuracy_low: float
    answer_accuracy_high: float
    chain_exact_match: float
    n_test: int
    seconds: float
    certified: int = 0
    close_calls: int = 0
    tolerance: float = 0.0
    errors: dict = field(default_factory=dict)


def wilson_interval(
    successes: int, trials: int, z: float = 1.959963984540054
) -> tuple[float, float]:
    """Return the 95 % Wilson score interval of a share (Wilson, 1927)."""
    if trials == 0:
        return 0.0, 1.0
    share = successes / trials
    centre = share + z * z / (2 * trials)
    spread = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def evaluate(
    model: Transformer,
    task: Task,
    sequences: SequenceSet,
    memory_mb: float = 1024,
    device: torch.device | str = "cpu",
    progress: Callable[[int, int], None] = lambda done, total: None,
    folder: Path | None = None,
) -> Evaluation:
    """Return accuracies of free greedy generation on ``sequences``.

    ``memory_mb`` bounds what a batch may hold, whatever the number of sequences.  With a
    ``folder``, more than `PART` sequences are evaluated in parts that are kept there: the same
    call goes on where an earlier one was cut off, its seconds included.  Who has the result safe
    on disk removes the folder.
    """
    if folder is None or len(sequences) <= PART:
        started = time.perf_counter()
        generation = generate(model, sequences, memory_mb, device, progress)
    else:
        generation, seconds = generate_in_parts(
            model, sequences, memory_mb, device, progress, folder
        )
        started = time.perf_counter() - seconds
    answer_right, chain_right = judge(task, sequences, generation)
    low, high = wilson_interval(int(answer_right.sum()), len(sequences))
    return Evaluation(
        answer_accuracy=float(answer_right.mean()),
        answer_accuracy_low=low,
        answer_accuracy_high=high,
        chain_exact_match=float(chain_right.mean()),
        n_test=len(sequences),
        seconds=time.perf_counter() - started,
        certified=generation.certified,
        close_calls=generation.close_calls,
        tolerance=generation.tolerance,
        errors=where_chains_break(task, sequences, generation, answer_right, chain_right),
    )


def judge(
    task: Task, sequences: SequenceSet, generation: Generation
) -> tuple[np.ndarray, np.ndarray]:
    """Return per sequence (answer right, chain exact), both (N,) bool.

    Chain exact: every generated token up to and including EOS is the gold one.  Answer right:
    EOS was reached and the tokens between the last answer marker and EOS are the gold answer's.
    """
    chain_right = generation.first_mistake < 0
    answer_right = chain_right.copy()
    for row in np.flatnonzero(~chain_right):
        start = int(sequences.prompt_lengths[row])
        gold = sequences.tokens[row, start : sequences.lengths[row]]
        written = generation.tokens[row, start : generation.lengths[row]]
        expected = task.extract_answer(task.vocabulary.decode(gold))
        answer = task.extract_answer(task.vocabulary.decode(written))
        answer_right[row] = answer is not None and answer == expected
    return answer_right, chain_right


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
    tolerances = [COARSE_SAFETY * coarse, max(SAFETY * single, MINIMUM_TOLERANCE), 0.0]
    while True:
        try:
            return engine.run(tolerances)
        except _ToleranceTooSmall as failure:
            safety = COARSE_SAFETY if failure.level == COARSE else SAFETY
            tolerances[failure.level] = safety * failure.error


def generate_in_parts(
    model: Transformer,
    sequences: SequenceSet,
    memory_mb: float,
    device: torch.device | str,
    progress: Callable[[int, int], None],
    folder: Path,
) -> tuple[Generation, float]:
    """Return what `generate` returns and the seconds it took, over all calls.

    A part in ``folder`` counts when it was written for these weights and these sequences.
    """
    weights = _digest(*(tensor.detach().cpu().numpy() for tensor in model.state_dict().values()))
    parts, seconds = [], 0.0
    for start in range(0, len(sequences), PART):
        some = sequences.select(slice(start, start + PART))
        path, key = folder / f"{start}.npz", f"{weights} {_digest(some.tokens, some.lengths)}"
        known = _read_part(path, key)
        if known is None:
            begun = time.perf_counter()
            part = generate(
                model, some, memory_mb, device,
                lambda done, total, before=start: progress(before + done, len(sequences)),  # type: ignore[misc]
            )  # fmt: skip
            known = part, time.perf_counter() - begun
            _write_part(path, key, *known)
        parts.append(known[0])
        seconds += known[1]
    return _joined(parts), seconds


def _digest(*arrays: np.ndarray) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _write_part(path: Path, key: str, part: Generation, seconds: float) -> None:
    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez(file, key=key, seconds=seconds, **vars(part))

    write_atomically(path, write)


def _read_part(path: Path, key: str) -> tuple[Generation, float] | None:
    """Return a kept part and its seconds; None when there is none of this key."""
    try:
        with np.load(path) as content:
            if str(content["key"]) != key:
                return None
            arrays = {name: content[name] for name in Generation.__dataclass_fields__}
            seconds = float(content["seconds"])
    except Exception:  # absent, or whatever a damaged file makes its reader raise
        return None
    values = {name: array if array.ndim else array.item() for name, array in arrays.items()}
    return Generation(**values), seconds


def _joined(parts: list[Generation]) -> Generation:
    return Generation(
        tokens=np.concatenate([part.tokens for part in parts]),
        lengths=np.concatenate([part.lengths for part in parts]),
        first_mistake=np.concatenate([part.first_mistake for part in parts]),
        certified=sum(part.certified for part in parts),
        close_calls=sum(part.close_calls for part in parts),
        tolerance=max(part.tolerance for part in parts),
        largest_error=max(part.largest_error for part in parts),
    )


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
        self.rows_per_batch = max(1, min(LARGEST_BATCH, int(budget / bytes_per_row)))

    @torch.no_grad()
    def calibrate(self) -> tuple[float, float]:
        """Return the largest difference to float64 logits on a few sequences, of bfloat16 (0 where
        it is not used) and of float32.

        Raises `RunError` when the logits are not finite.
        """
        rows = torch.linspace(0, len(self.set) - 1, min(CALIBRATION_ROWS, len(self.set))).long()
        batch = self.set.batch(rows.to(self.device))
        inputs, counted = batch.tokens[:, :-1], batch.loss_mask
        exact = self._logits(EXACT, inputs, counted)
        errors = [0.0, 0.0]
        for level in (COARSE, SINGLE) if self.has_coarse else (SINGLE,):
            difference = self._logits(level, inputs, counted).double() - exact
            errors[level] = float(difference.abs().max())
        if not all(math.isfinite(error) for error in errors):
            raise RunError("the model's logits are not finite; it cannot be evaluated")
        return errors[COARSE], errors[SINGLE]

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
        self.tolerances, self.close_calls, self.largest_error = tolerances, 0, 0.0
        self.coarse_rows = self.coarse_open = 0
        self.first_level = COARSE if self.has_coarse else SINGLE
        count = len(self.set)
        width = min(self.max_len + 1, self.set.tokens.shape[1])
        self.tokens = self.set.tokens.new_full((count, self.max_len + 1), PAD_ID)
        self.tokens[:, :width] = self.set.tokens[:, :width]
        self.lengths = self.set.lengths.clone()
        self.first_mistake = torch.full((count,), -1, device=self.device)
        certified = 0
        for rows in self._certifying_batches():
            certified += len(rows) - self._certify(rows)
            self.progress(certified, count)
        mistaken = torch.nonzero(self.first_mistake >= 0).flatten()
        order = mistaken[torch.argsort(self.first_mistake[mistaken])]
        for start in range(0, len(order), self.rows_per_batch):
            self._generate(order[start : start + self.rows_per_batch])
            done = count - len(mistaken) + min(start + self.rows_per_batch, len(order))
            self.progress(done, count)
        return Generation(
            tokens=self.tokens.cpu().numpy().astype(self.token_type),
            lengths=self.lengths.cpu().numpy(),
            first_mistake=self.first_mistake.cpu().numpy(),
            certified=count - len(mistaken),
            close_calls=self.close_calls,
            tolerance=tolerances[SINGLE],
            largest_error=self.largest_error,
        )

    def _certifying_batches(self) -> list[Tensor]:
        """Cut the rows, sorted by length, into batches of bounded size and few shapes."""
        order = torch.argsort(self.set.lengths)
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

    def _certify(self, rows: Tensor) -> int:
        """Find the first mistake of ``rows`` (B,) under teacher forcing; return how many err."""
        batch = self.set.batch(rows)
        choice = torch.zeros_like(batch.tokens[:, 1:])  # (B, T)
        self._look(batch, torch.arange(len(rows), device=self.device), self.first_level, choice)
        return self._note_mistakes(rows, choice, (choice != batch.tokens[:, 1:]) & batch.loss_mask)

    def _look(self, batch: Batch, part: Tensor, level: int, choice: Tensor) -> Tensor:
        """Put the arg-maxes of rows ``part`` (b,) of ``batch`` into ``choice`` (B, T).

        Rows of which ``level`` cannot tell where they first go wrong are looked at again, one
        level finer.  Returns this level's logits (targets, V).
        """
        inputs, targets = batch.tokens[part, :-1], batch.tokens[part, 1:]  # (b, T)
        counted = batch.loss_mask[part]
        logits = self._logits(level, inputs, counted)
        own, close = torch.zeros_like(targets), torch.zeros_like(counted)
        if level == EXACT:
            own[counted] = _lowest_argmax(logits)
        else:
            own[counted], margin = _choose(logits)
            close[counted] = margin < self.tolerances[level]
        choice[part] = own
        wrong = (own != targets) & counted
        open_rows = torch.nonzero(close.any(1) & (_first(close) <= _first(wrong))).flatten()
        if level == COARSE:
            self._judge_coarse(len(part), len(open_rows))
        row_of_target = torch.nonzero(counted)[:, 0] if len(open_rows) else open_rows
        for some in self._parts(open_rows, level + 1):
            finer = self._look(batch, part[some], level + 1, choice)
            these = torch.isin(row_of_target, some)
            self._note_error(level, logits[these], finer, int(close[some].sum()))
        return logits

    def _judge_coarse(self, rows: int, open_rows: int) -> None:
        """Give bfloat16 up where it decides little."""
        self.coarse_rows += rows
        self.coarse_open += open_rows
        if self.coarse_rows >= COARSE_TRIAL_ROWS:
            many = self.coarse_open > COARSE_OPEN_SHARE * self.coarse_rows
            self.first_level = SINGLE if many else COARSE

    def _note_mistakes(self, rows: Tensor, choice: Tensor, wrong: Tensor) -> int:
        """Put each row's first wrong token in its place, empty what follows; return how many."""
        mistaken = wrong.any(1)
        rows, place = rows[mistaken], _first(wrong)[mistaken]
        position = place + 1  # target t is token t + 1
        self.first_mistake[rows] = position
        self.lengths[rows] = position + 1
        columns = torch.arange(self.tokens.shape[1], device=self.device)
        self.tokens[rows] = self.tokens[rows].masked_fill(columns >= position[:, None], PAD_ID)
        written = choice[mistaken].gather(1, place[:, None]).flatten()
        self.tokens[rows, position] = written.to(self.tokens.dtype)
        return len(rows)

    def _generate(self, rows: Tensor) -> None:
        """Generate from the first mistake of ``rows`` (B,) to EOS or the longest sequence."""
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
        choice, margin = _choose(logits)
        close = torch.nonzero(margin < self.tolerances[SINGLE]).flatten()
        for part in self._parts(close, EXACT):
            lengths = self.lengths[rows[part]]
            prefix = self.tokens[rows[part], : int(lengths.max())]
            last = self.exact.hidden(prefix)[torch.arange(len(part)), lengths - 1]  # (b, D)
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
        if not error <= self.tolerances[level] / 2:
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


def _first(mask: Tensor) -> Tensor:
    """Return for each row of ``mask`` (B, T) the first true column, T where there is none."""
    columns = torch.arange(mask.shape[1], device=mask.device)
    return torch.where(mask, columns, mask.shape[1]).amin(1)


def where_chains_break(
    task: Task,
    sequences: SequenceSet,
    generation: Generation,
    answer_right: np.ndarray,
    chain_right: np.ndarray,
) -> dict:
    """Return where accuracy is lost.

    ``by_position`` and ``by_step`` hold rows [position or step, first mistakes there, sequences
    that came there without a mistake]; position counts from 0 after the prompt; steps are the
    task's own (an expression, a row of the matrix, a number), over the first `STEP_SAMPLE`
    sequences.
    """
    prompt = np.asarray(sequences.prompt_lengths, dtype=np.int64)
    last = np.asarray(sequences.lengths) - prompt - 1
    mistaken = ~chain_right
    last[mistaken] = generation.first_mistake[mistaken] - prompt[mistaken]
    missed = np.bincount(last[mistaken], minlength=int(last.max()) + 1)
    reached = np.bincount(last, minlength=len(missed))[::-1].cumsum()[::-1]
    return {
        "by_position": [
            [i, int(m), int(r)] for i, (m, r) in enumerate(zip(missed, reached, strict=True))
        ],
        "by_step": _by_step(task, sequences, last, chain_right),
        "answer_right_chain_wrong": int((answer_right & mistaken).sum()),
        "answer_wrong_chain_right": int((~answer_right & chain_right).sum()),
    }


def _by_step(
    task: Task, sequences: SequenceSet, last: np.ndarray, chain_right: np.ndarray
) -> list[list[int]]:
    missed: dict[int, int] = {}
    reached: dict[int, int] = {}
    for row in range(min(STEP_SAMPLE, len(sequences))):
        stop = int(sequences.lengths[row]) - 1
        words = task.vocabulary.decode(sequences.tokens[row, :stop])
        steps = task.chain_steps(task.parse(words))
        steps = [*steps, steps[-1]]  # EOS belongs to the last step
        for step in set(steps[: last[row] + 1]):
            reached[step] = reached.get(step, 0) + 1
        if not chain_right[row]:
            missed[steps[last[row]]] = missed.get(steps[last[row]], 0) + 1
    return [[step, missed.get(step, 0), reached[step]] for step in sorted(reached)]
