"""How far a token lies from what it needs, over sampled sequences.

Locality (Yang et al. 2024, Definition 5.3): the largest distance m from a token after the prompt to
a token it needs; a second measure counts only dependencies on the chain. Both are also given
relative to L.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tasks.task import Example, Task


@dataclass(frozen=True)
class Locality:
    """Distances in tokens; `chain_distance` is 0 if no token needs an earlier chain token."""

    max_len: int
    distance: int
    chain_distance: int

    @property
    def relative(self) -> float:
        return self.distance / self.max_len

    @property
    def chain_relative(self) -> float:
        return self.chain_distance / self.max_len


def measure(task: Task, count: int = 20, seed: int = 0) -> Locality:
    sequences = task.draw(seed, 0, 0, count)
    examples = [task.decode(sequences, row) for row in range(count)]
    longest, in_chain = map(max, zip(*(distances(task, one) for one in examples), strict=True))
    return Locality(task.max_len, longest, in_chain)


def distances(task: Task, example: Example) -> tuple[int, int]:
    """The largest distance to a needed token, and to a needed token of the chain."""
    first = len(example.prompt)
    needed = [
        (position - other, other >= first)
        for position, own in enumerate(task.dependencies(example), start=first)
        for other in own
    ]
    in_chain = [distance for distance, own in needed if own]
    return max((distance for distance, _ in needed), default=0), max(in_chain, default=0)


def locality_table(tasks: Iterable[Task], count: int = 20, seed: int = 0) -> list[str]:
    """The lines of a table with a row per task."""
    head = f"{'task':<12} {'size':>5} {'L':>6} {'m':>6} {'m/L':>6} {'m chain':>8} {'chain/L':>8}"
    lines = [head]
    for task in tasks:
        found = measure(task, count, seed)
        lines.append(
            f"{task.name:<12} {task.size:>5} {found.max_len:>6} {found.distance:>6} "
            f"{found.relative:>6.3f} {found.chain_distance:>8} {found.chain_relative:>8.3f}"
        )
    return lines
