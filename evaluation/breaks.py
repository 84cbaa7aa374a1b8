"""Where chains break."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from evaluation.generation import Generation
from tasks.task import SequenceSet, Task

STEP_SAMPLE = 2000  # sequences whose chains are cut into the task's steps


def where_chains_break(
    task: Task, sequences: SequenceSet, generation: Generation, answer_right: np.ndarray
) -> dict[str, Any]:
    """Return where accuracy is lost.

    ``by_position`` and ``by_step`` hold rows [position or step, first mistakes there, sequences
    that came there without a mistake]; position counts from 0 after the prompt; steps are the
    task's own (an expression, a row of the matrix, a number), over the first `STEP_SAMPLE`
    sequences.  ``answer_right_chain_wrong`` and ``answer_wrong_chain_right`` count sequences.
    ``answer_right`` (N,) is that of `judge.judge`.
    """
    prompt = np.asarray(sequences.prompt_lengths, dtype=np.int64)
    mistaken = generation.first_mistake >= 0
    last = np.where(mistaken, generation.first_mistake, sequences.lengths - 1) - prompt
    missed = np.bincount(last[mistaken], minlength=int(last.max()) + 1)
    reached = np.bincount(last, minlength=len(missed))[::-1].cumsum()[::-1]
    return {
        "by_position": [
            [i, int(m), int(r)] for i, (m, r) in enumerate(zip(missed, reached, strict=True))
        ],
        "by_step": _by_step(task, sequences, last, mistaken),
        "answer_right_chain_wrong": int((answer_right & mistaken).sum()),
        "answer_wrong_chain_right": int((~answer_right & ~mistaken).sum()),
    }


def _by_step(
    task: Task, sequences: SequenceSet, last: np.ndarray, mistaken: np.ndarray
) -> list[list[int]]:
    """Return the rows of ``by_step``; ``last`` (N,) is the last position that a sequence reached
    without a mistake before it, ``mistaken`` (N,) whether it made one there."""
    missed: Counter[int] = Counter()
    reached: Counter[int] = Counter()
    for row in range(min(STEP_SAMPLE, len(sequences))):
        steps = task.chain_steps(task.decode(sequences, row))
        steps = [*steps, steps[-1]]  # EOS belongs to the last step
        reached.update(set(steps[: last[row] + 1]))
        if mistaken[row]:
            missed[steps[last[row]]] += 1
    return [[step, missed[step], reached[step]] for step in sorted(reached)]
