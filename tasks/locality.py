"""How far tokens lie from what they need, measured over sampled sequences.

Locality (Yang et al. 2024, Definition 5.3): m is the largest distance from a token behind the
prompt to any token that it needs; a second measure counts only what it needs of the chain itself.
Both are also given relative to L, the longest sequence.

For edit distance, also what sparse attention can combine in one step: the share of letter pairs
that some position sees together.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tasks.ed import EditDistance
from tasks.task import Example, Task


@dataclass(frozen=True)
class Locality:
    """Distances in tokens; ``chain_distance`` is 0 where no token needs an earlier chain state.

    ``seen_pairs`` holds the shares of letter pairs seen with windows of one and two blocks, and
    is None for a task without them.
    """

    max_len: int
    distance: int
    chain_distance: int
    seen_pairs: tuple[float, float] | None = None

    @property
    def relative(self) -> float:
        """m / L."""
        return self.distance / self.max_len

    @property
    def chain_relative(self) -> float:
        """The same for earlier chain states alone."""
        return self.chain_distance / self.max_len


def measure(task: Task, count: int = 20, seed: int = 0) -> Locality:
    """Return the figures over ``count`` sequences of the test distribution."""
    sequences = task.draw(seed, 0, 0, count)
    examples = [task.decode(sequences, row) for row in range(count)]
    longest, in_chain = map(max, zip(*(distances(task, one) for one in examples), strict=True))
    if not isinstance(task, EditDistance):
        return Locality(task.max_len, longest, in_chain)
    pairs = seen_pairs(task, examples, 1), seen_pairs(task, examples, 2)
    return Locality(task.max_len, longest, in_chain, pairs)


def distances(task: Task, example: Example) -> tuple[int, int]:
    """Return the largest distance to a needed token, and to a needed token of the chain."""
    first = len(example.prompt)
    needed = [
        (position - other, other >= first)
        for position, own in enumerate(task.dependencies(example), start=first)
        for other in own
    ]
    in_chain = [distance for distance, own in needed if own]
    return max((distance for distance, _ in needed), default=0), max(in_chain, default=0)


def attended(length: int, block_size: int, window_blocks: int) -> np.ndarray:
    """Return what each position sees under sparse attention, (length, length) bool.

    Yang et al. 2024, equation 6, with one summary token a block: row i holds the window of
    ``window_blocks`` blocks that ends at i and the last token of every block up to i.
    """
    query, key = np.arange(length)[:, None], np.arange(length)
    summary = key % block_size == block_size - 1
    return (key <= query) & ((query - key < window_blocks * block_size) | summary)


def seen_pairs(task: EditDistance, examples: Iterable[Example], window_blocks: int) -> float:
    """Return the share of letter pairs that one position sees together in time.

    A pair is a letter of each string, thus an entry of the table.  It is seen when some position
    before the entry (the last of them predicts it) attends to a copy of both letters, with blocks
    of 2^⌊log₂ √L⌋ positions.
    """
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
    """Return the lines of a table, a row a task.

    The last columns are the shares of `seen_pairs` with a window of one and of two blocks.
    """
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
