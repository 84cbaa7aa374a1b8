"""Accuracies of greedy generation, or of labels, and where chains go wrong."""

import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from evaluation.generate import Generation, Memory, Progress, first_difference, generate
from evaluation.state_format import StateRounding
from models.transformer import Transformer
from tasks.sequences import SequenceSet
from tasks.task import Task

LABEL_THRESHOLD = 0.9  # least accuracy of each label in the longest prefix


@dataclass
class Evaluation:
    """The result of one evaluation; accuracies are shares of the sequences, 0 to 1.

    `answer_accuracy`: right final answers, with the 95 % Wilson interval `answer_accuracy_low` to
    `answer_accuracy_high`; `chain_exact_match`: sequences with every generated token gold. With
    labels, the last label is the answer, all labels the chain; online, all labels are both.
    `chance_accuracy`: that of the most frequent answer. `n_test`: sequences; `seconds`: CPU time,
    or wall time on a GPU; `errors`: where chains break (`where_chains_break`), accuracy by kind
    (`by_kind`); `generation`: what the model wrote.
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
    from scipy.stats import binomtest  # takes 0.7 s, so not for every command

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
    right = binomtest(int(answer_right.sum()), len(sequences))
    low, high = right.proportion_ci(method="wilson")
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
    return max(answers.values()) / len(sequences)


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


def where_chains_break(sequences: SequenceSet, generation: Generation) -> dict[str, Any]:
    """`by_position`: rows [position after the prompt, first mistakes there, sequences without an
    earlier mistake]; with labels also `longest_prefix`."""
    mistaken = generation.first_mistake >= 0
    last = np.where(mistaken, generation.first_mistake, sequences.lengths - 1)
    last = last - sequences.prompt_lengths  # place of the first mistake, or of the end
    missed = np.bincount(last[mistaken], minlength=last.max() + 1)
    reached = np.bincount(last)[::-1].cumsum()[::-1]
    found = {"by_position": np.column_stack([np.arange(len(missed)), missed, reached]).tolist()}
    if sequences.labels is not None:
        found["longest_prefix"] = longest_prefix(sequences.labels, generation.tokens)
    return found


def longest_prefix(labels: np.ndarray, predicted: np.ndarray) -> int:
    """How many labels, from the first on, are each right in 90 % of the sequences; (N, W)."""
    labels, predicted = labels[:, 2:], predicted[:, 2:]  # the first label is that of token 2
    there = labels > 0
    enough = (there & (predicted == labels)).sum(0) >= LABEL_THRESHOLD * there.sum(0)
    return int(np.logical_and.accumulate(enough & there.any(0)).sum())


def by_kind(task: Task, sequences: SequenceSet, answer_right: np.ndarray) -> dict[str, list[int]]:
    """For each kind of instance (`Task.kind_names`), the number of right answers and of sequences;
    empty if the task names none."""
    if not task.kind_names:
        return {}
    found: dict[str, list[int]] = {}
    for length in np.unique(sequences.prompt_lengths):  # `kinds` takes sequences of one size
        rows = np.flatnonzero(sequences.prompt_lengths == length)
        kinds = task.kinds(sequences.select(rows))
        assert kinds is not None
        for kind, right in zip(kinds.tolist(), answer_right[rows].tolist(), strict=True):
            counts = found.setdefault(task.kind_names[kind], [0, 0])
            counts[0] += right
            counts[1] += 1
    return dict(sorted(found.items()))
