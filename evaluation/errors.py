"""Where chains and labels go wrong, and in which kinds of instances."""

from typing import Any

import numpy as np

from evaluation.generate import Generation
from tasks.sequences import SequenceSet
from tasks.task import Task

LABEL_THRESHOLD = 0.9  # least accuracy of each label in the longest prefix


def where_chains_break(sequences: SequenceSet, generation: Generation) -> dict[str, Any]:
    """`by_position`: rows [position after the prompt, first mistakes there, sequences without an
    earlier mistake]. With labels also `longest_prefix`: how many labels, from the first on, are
    each right in 90 % of the sequences."""
    mistaken = generation.first_mistake >= 0
    last = np.where(mistaken, generation.first_mistake, sequences.lengths - 1)
    last = last - sequences.prompt_lengths  # place of the first mistake, or of the end
    missed = np.bincount(last[mistaken], minlength=last.max() + 1)
    reached = np.bincount(last)[::-1].cumsum()[::-1]
    found = {"by_position": np.column_stack([np.arange(len(missed)), missed, reached]).tolist()}
    if sequences.labels is not None:
        there = sequences.labels[:, 2 : sequences.lengths.max()] > 0  # (N, labels)
        right = there & (generation.tokens == sequences.labels)[:, 2 : sequences.lengths.max()]
        below = np.flatnonzero(right.sum(0) < LABEL_THRESHOLD * there.sum(0))
        found["longest_prefix"] = int(below[0]) if len(below) else there.shape[1]
    return found


def by_kind(task: Task, sequences: SequenceSet, answer_right: np.ndarray) -> dict[str, list[int]]:
    """For each kind of instance (`Task.kind_names`), the number of right answers and of sequences;
    empty if the task names none."""
    if not task.kind_names:
        return {}
    found: dict[str, list[int]] = {}
    for row in range(len(sequences)):  # sequences of a file may have several sizes
        strata = task.strata(sequences.select([row]))
        assert strata is not None
        counts = found.setdefault(task.kind_names[strata[0, 1]], [0, 0])
        counts[0] += int(answer_right[row])
        counts[1] += 1
    return dict(sorted(found.items()))
