"""Where chains and labels go wrong, and in which kinds of instances."""

from typing import Any

import numpy as np

from evaluation.generate import Generation
from tasks.sequences import SequenceSet
from tasks.task import Task

LABEL_THRESHOLD = 0.9  # least accuracy of each label in the longest prefix


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
