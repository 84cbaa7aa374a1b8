"""How far a token lies from what it needs, over sampled sequences.

Locality (Yang et al. 2024, Definition 5.3): the largest distance m from a token after the prompt to
a token it needs; a second measure counts only dependencies on the chain. Both are also given
relative to L. For edit distance, also the share of letter pairs that sparse attention sees together
at some position.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tasks.ed import EditDistance
from tasks.task import Example, Task


@dataclass(frozen=True)
class Locality:
    """Distances in tokens; `chain_distance` is 0 if no token needs an earlier chain token.
    `seen_pairs` are shares of letter pairs seen with windows of one and two blocks, or None."""

    max_len: int
    distance: int
    chain_distance: int
    seen_pairs: tuple[float, float] | None = None

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
    if not isinstance(task, EditDistance):
        return Locality(task.max_len, longest, in_chain)
    pairs = seen_pairs(task, examples, 1), seen_pairs(task, examples, 2)
    return Locality(task.max_len, longest, in_chain, pairs)


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


def attended(length: int, block_size: int, window_blocks: int) -> np.ndarray:
    """(length, length) bool: what each position sees under sparse attention with one summary token
    (Yang et al. 2024, eq. 6)."""
    query, key = np.arange(length)[:, None], np.arange(length)
    summary = key % block_size == block_size - 1
    return (key <= query) & ((query - key < window_blocks * block_size) | summary)


def seen_pairs(task: EditDistance, examples: Iterable[Example], window_blocks: int) -> float:
    """The share of letter pairs, one from each string, seen together in time: some position before
    their table entry (the last of them predicts it) attends to a copy of both, with blocks of
    2^⌊log₂ √L⌋."""
    block_size = 2 ** ((task.max_len.bit_length() - 1) // 2)
    sees = attended(task.max_len, block_size, window_blocks)
    seen = total = 0
    for example in examples:
        first, second = task.letter_positions(example)
        sees_first = np.stack([sees[:, copies].any(1) for copies in first], axis=1)
        sees_second = np.stack([sees[:, copies].any(1) for copies in second], axis=1)
        for (i, j), cell in np.ndenumerate(task.cell_positions(example)):
            seen += bool((sees_first[:cell, i] & sees_second[:cell, j]).any())
            total += 1
    return seen / total


def locality_table(tasks: Iterable[Task], count: int = 20, seed: int = 0) -> list[str]:
    """The lines of a table with a row per task; the last columns are `seen_pairs` for windows of
    one and two blocks."""
    head = f"{'task':<12} {'size':>5} {'L':>6} {'m':>6} {'m/L':>6} {'m chain':>8} {'chain/L':>8}"
    lines = [f"{head} {'pairs k=1':>10} {'pairs k=2':>10}"]
    for task in tasks:
        found = measure(task, count, seed)
        line = (
            f"{task.name:<12} {task.size:>5} {found.max_len:>6} {found.distance:>6} "
            f"{found.relative:>6.3f} {found.chain_distance:>8} {found.chain_relative:>8.3f}"
        )
        shares = [f" {share:>10.2f}" for share in found.seen_pairs or ()]
        lines.append(line + "".join(shares))
    return lines
