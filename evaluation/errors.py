"""Where chains and labels go wrong, and in which kinds of instances."""

from typing import Any

import numpy as np

from evaluation.generate import Generation
from tasks.sequences import SequenceSet
from tasks.task import Task

LABEL_THRESHOLD = 0.9  # least accuracy of each label in the longest prefix


def where_chains_break(sequences: SequenceSet, generation: Generation) -> dict[str, Any]:
    """`by_position`: rows [position after the prompt, first mistakes there, sequences without an
    earlier mistake]."""
    prompt = np.asarray(sequences.prompt_lengths, dtype=np.int64)
    mistaken = generation.first_mistake >= 0
    last = np.where(mistaken, generation.first_mistake, sequences.lengths - 1) - prompt
    return {"by_position": _counts(last, mistaken, int(last.max()) + 1)}


def where_labels_break(sequences: SequenceSet, predicted: np.ndarray) -> dict[str, Any]:
    """`where_chains_break` for labels `predicted` (N, W). `longest_prefix` is how many labels, from
    the first on, are each right in 90 % of the sequences."""
    assert sequences.labels is not None
    columns = np.arange(2, sequences.lengths.max())
    labelled = columns < sequences.lengths[:, None]  # (N, labels)
    wrong = (predicted != sequences.labels)[:, columns] & labelled
    there, right = labelled.sum(axis=0), (labelled & ~wrong).sum(axis=0)
    below = np.flatnonzero(right < LABEL_THRESHOLD * there)
    mistaken = wrong.any(axis=1)
    last = np.where(mistaken, wrong.argmax(axis=1), sequences.lengths - 3)
    longest = int(below[0]) if len(below) else len(there)
    return {"by_position": _counts(last, mistaken, len(there)), "longest_prefix": longest}


def _counts(last: np.ndarray, mistaken: np.ndarray, places: int) -> list[list[int]]:
    """`last` (N,) is the place of a sequence's first mistake, or of its end."""
    missed = np.bincount(last[mistaken], minlength=places)
    reached = np.bincount(last, minlength=places)[::-1].cumsum()[::-1]
    rows: list[list[int]] = np.column_stack([np.arange(places), missed, reached]).tolist()
    return rows


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
