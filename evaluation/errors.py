"""Where chains and labels go wrong, and in which kinds of instances."""

from collections import Counter
from typing import Any

import numpy as np

from evaluation.generate import Generation
from tasks.task import SequenceSet, Task

LABEL_THRESHOLD = 0.9  # least accuracy of each label in the longest prefix
STEP_SAMPLE = 2000  # sequences whose chains are cut into the task's steps


def where_chains_break(
    task: Task, sequences: SequenceSet, generation: Generation, answer_right: np.ndarray
) -> dict[str, Any]:
    """Where accuracy is lost.

    `by_position` and `by_step` have rows [position or step, first mistakes there, sequences without
    an earlier mistake]; positions count from 0 after the prompt; steps are the task's own (an
    expression, a table row, a number), over the first `STEP_SAMPLE` sequences.
    `answer_right_chain_wrong` and `answer_wrong_chain_right` count sequences; `answer_right` (N,)
    is from `judge.judge`.
    """
    prompt = np.asarray(sequences.prompt_lengths, dtype=np.int64)
    mistaken = generation.first_mistake >= 0
    last = np.where(mistaken, generation.first_mistake, sequences.lengths - 1) - prompt
    missed_steps: Counter[int] = Counter()
    reached_steps: Counter[int] = Counter()
    for row in range(min(STEP_SAMPLE, len(sequences))):
        steps = task.chain_steps(task.decode(sequences, row))
        steps = [*steps, steps[-1]]  # EOS belongs to the last step
        reached_steps.update(set(steps[: last[row] + 1]))
        if mistaken[row]:
            missed_steps[steps[last[row]]] += 1
    by_step = [[step, missed_steps[step], reached_steps[step]] for step in sorted(reached_steps)]
    return {**_counts(last, mistaken, answer_right, int(last.max()) + 1), "by_step": by_step}


def where_labels_break(
    sequences: SequenceSet, said: np.ndarray, answer_right: np.ndarray
) -> dict[str, Any]:
    """`where_chains_break` for labels `said` (N, W); each label is a step. `longest_prefix` is how
    many labels, from the first on, are each right in 90 % of the sequences."""
    assert sequences.labels is not None
    columns = np.arange(said.shape[1])
    labelled = (columns < sequences.lengths[:, None])[:, 2:]  # (N, labels)
    wrong = (said != sequences.labels)[:, 2:] & labelled
    there, right = labelled.sum(axis=0), (labelled & ~wrong).sum(axis=0)
    below = np.flatnonzero(right < LABEL_THRESHOLD * there)
    mistaken = wrong.any(axis=1)
    last = np.where(mistaken, wrong.argmax(axis=1), sequences.lengths - 3)
    found = _counts(last, mistaken, answer_right, len(there))
    longest = int(below[0]) if len(below) else len(there)
    return {**found, "by_step": found["by_position"], "longest_prefix": longest}


def _counts(
    last: np.ndarray, mistaken: np.ndarray, answer_right: np.ndarray, places: int
) -> dict[str, Any]:
    """`last` (N,) is the place of a sequence's first mistake, or of its end."""
    missed = np.bincount(last[mistaken], minlength=places)
    reached = np.bincount(last, minlength=places)[::-1].cumsum()[::-1]
    return {
        "by_position": np.column_stack([np.arange(places), missed, reached]).tolist(),
        "answer_right_chain_wrong": int((answer_right & mistaken).sum()),
        "answer_wrong_chain_right": int((~answer_right & ~mistaken).sum()),
    }


def by_kind(task: Task, sequences: SequenceSet, answer_right: np.ndarray) -> dict[str, list[int]]:
    """For each kind of instance (`Task.kind_of`), the number of right answers and of sequences;
    empty if there is only one kind."""
    if type(task).kind_of is Task.kind_of:
        return {}
    found: dict[str, list[int]] = {}
    for row in range(len(sequences)):
        counts = found.setdefault(task.kind_of(task.decode(sequences, row)), [0, 0])
        counts[0] += int(answer_right[row])
        counts[1] += 1
    return dict(sorted(found.items()))
