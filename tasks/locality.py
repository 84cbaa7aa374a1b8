"""Locality of a task (the paper's Definition 5.3), measured over sampled sequences.

m is the largest distance from a token behind the prompt to any token that it needs; a second
measure counts only what it needs of the chain itself.  Both are also given relative to L, the
longest sequence.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tasks.task import Sequence, Task


@dataclass(frozen=True)
class Locality:
    """Distances in tokens; ``chain_distance`` is 0 where no token needs an earlier chain state."""

    max_len: int
    distance: int
    chain_distance: int

    @property
    def relative(self) -> float:
        """m / L."""
        return self.distance / self.max_len

    @property
    def chain_relative(self) -> float:
        """The same for earlier chain states alone."""
        return self.chain_distance / self.max_len


def measure(task: Task, count: int = 20, seed: int = 0) -> Locality:
    """Return the largest distances over ``count`` sequences of the test distribution."""
    sequences = task.draw(seed, 0, 0, count)
    found = [distances(task, task.decode(sequences, row)) for row in range(count)]
    return Locality(task.max_len, max(any_ for any_, _ in found), max(own for _, own in found))


def distances(task: Task, sequence: Sequence) -> tuple[int, int]:
    """Return the largest distance to a needed token, and to a needed token of the chain."""
    first = len(sequence.prompt)
    longest = longest_in_chain = 0
    for position, needed in enumerate(task.dependencies(sequence), start=first):
        longest = max([longest, *(position - other for other in needed)])
        longest_in_chain = max(
            [longest_in_chain, *(position - other for other in needed if other >= first)]
        )
    return longest, longest_in_chain


def table(tasks: Iterable[Task], count: int = 20, seed: int = 0) -> list[str]:
    """Return the lines of a table, a row a task."""
    head = f"{'task':<12} {'size':>5} {'L':>6} {'m':>6} {'m/L':>6} {'m chain':>8} {'chain/L':>8}"
    lines = [head]
    for task in tasks:
        found = measure(task, count, seed)
        lines.append(
            f"{task.name:<12} {task.size:>5} {found.max_len:>6} {found.distance:>6} "
            f"{found.relative:>6.3f} {found.chain_distance:>8} {found.chain_relative:>8.3f}"
        )
    return lines
