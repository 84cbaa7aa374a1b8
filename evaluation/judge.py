"""Accuracies of greedy generation, or of labels."""

import math
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from evaluation.errors import by_kind, where_chains_break
from evaluation.generate import Generation, Memory, Progress, first_difference, generate
from evaluation.state_format import StateRounding
from models.transformer import Transformer
from tasks.sequences import SequenceSet
from tasks.task import Task


@dataclass
class Evaluation:
    """The result of one evaluation; accuracies are shares of the sequences, 0 to 1.

    `answer_accuracy`: right final answers, with the 95 % Wilson interval `answer_accuracy_low` to
    `answer_accuracy_high`; `chain_exact_match`: sequences with every generated token gold. With
    labels, the last label is the answer and all labels are the chain; online, all are both.
    `chance_accuracy`: that of the most frequent answer. `n_test`: sequences; `seconds`: of the CPU,
    or wall time on a GPU; `errors`: where chains break (`errors.where_chains_break`), accuracy by
    kind (`errors.by_kind`); `generation`: what the model wrote.
    """

    answer_accuracy: float
    answer_accuracy_low: float
    answer_accuracy_high: float
    chain_exact_match: float
    chance_accuracy: float
    n_test: int
    seconds: float
    errors: dict[str, Any]
    generation: Generation


def evaluate(
    model: Transformer,
    task: Task,
    sequences: SequenceSet,
    memory_mb: Memory = "auto",
    device: torch.device | str = "cpu",
    progress: Progress = lambda done, total: None,
    rounding: StateRounding | None = None,
) -> Evaluation:
    """Accuracies on `sequences`; arguments and errors as in `generate`."""
    clock = time.process_time if torch.device(device).type == "cpu" else time.perf_counter
    started = clock()
    generation = generate(model, sequences, memory_mb, device, progress, rounding)
    judged = sequences, generation
    if task.format == "online":
        judged = without_markers(sequences, generation)
    answer_right, chain_right = judge(task, *judged)
    errors = where_chains_break(*judged)
    if kinds := by_kind(task, sequences, answer_right):
        errors["by_kind"] = kinds
    low, high = wilson_interval(int(answer_right.sum()), len(sequences))
    return Evaluation(
        answer_accuracy=float(answer_right.mean()),
        answer_accuracy_low=low,
        answer_accuracy_high=high,
        chain_exact_match=float(chain_right.mean()),
        chance_accuracy=chance_accuracy(task, sequences),
        n_test=len(sequences),
        seconds=clock() - started,
        errors=errors,
        generation=generation,
    )


def judge(
    task: Task, sequences: SequenceSet, generation: Generation
) -> tuple[np.ndarray, np.ndarray]:
    """(answer right, chain exact) per sequence, both (N,) bool. Chain exact: every generated token
    up to EOS is gold. Answer right: EOS was reached, and the tokens between the last answer marker
    and EOS are the gold answer's."""
    chain_right = generation.first_mistake < 0
    if task.format == "online":  # after a mistake, the model reads gold labels, not its own
        return chain_right, chain_right
    if sequences.labels is not None:
        last = np.arange(len(sequences)), sequences.lengths - 1
        return generation.tokens[last] == sequences.labels[last], chain_right
    answer_right = chain_right.copy()
    for row in np.flatnonzero(~chain_right).tolist():
        start = sequences.prompt_lengths[row]
        answer = _answer(task, generation.tokens[row, start : generation.lengths[row]])
        answer_right[row] = answer is not None and answer == _gold_answer(task, sequences, row)
    return answer_right, chain_right


def without_markers(
    sequences: SequenceSet, generation: Generation
) -> tuple[SequenceSet, Generation]:
    """Sequences and labels of format="online", without the markers between labels."""
    assert sequences.labels is not None
    kept = np.r_[0, 1, 2 : sequences.labels.shape[1] : 2]
    labels, predicted = sequences.labels[:, kept], generation.tokens[:, kept]
    read = replace(sequences, lengths=(sequences.lengths + 3) // 2, labels=labels)
    return read, Generation(predicted, read.lengths, first_difference(predicted, labels))


def chance_accuracy(task: Task, sequences: SequenceSet) -> float:
    """The accuracy of always giving the most frequent answer of `sequences`."""
    answers = Counter(_gold_answer(task, sequences, row) for row in range(len(sequences)))
    return max(answers.values(), default=0) / max(1, len(sequences))


def _gold_answer(task: Task, sequences: SequenceSet, row: int) -> tuple[str, ...] | None:
    start, stop = sequences.prompt_lengths[row], sequences.lengths[row]
    if sequences.labels is not None:
        labels = sequences.labels[row, start:stop].tolist()
        return tuple(map(str, labels if task.format == "online" else labels[-1:]))
    return _answer(task, sequences.tokens[row, start:stop])


def _answer(task: Task, tokens: np.ndarray) -> tuple[str, ...] | None:
    """The answer in `tokens` (T,) after a prompt, None without EOS."""
    answer = task.extract_answer(task.vocabulary.decode(tokens.tolist()))
    return None if answer is None else tuple(answer)


def wilson_interval(successes: int, trials: int) -> tuple[float, float]:
    """The 95 % Wilson score interval of a share (Wilson, 1927)."""
    z = 1.959963984540054
    share = successes / trials
    centre = share + z * z / (2 * trials)
    spread = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    low = 0.0 if successes == 0 else (centre - spread) / scale
    high = 1.0 if successes == trials else (centre + spread) / scale
    return low, high
