"""Accuracies of free greedy generation, and where chains break.

`evaluation.generation` says what the model writes; here it is judged, in parts kept on disk
where the evaluation is long.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from evaluation.generation import Generation, generate
from files import write_atomically
from models.transformer import Transformer
from tasks.task import SequenceSet, Task

STEP_SAMPLE = 2000
# An evaluation that may be cut off keeps what it has after so many sequences.
PART = 10_000


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
