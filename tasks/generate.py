"""Drawing sets of sequences with distinct prompts, in parallel, in one fixed order.

Threads draw blocks of candidates (the kernels release the interpreter lock); one loop admits
them in the order of their index.  A prompt is known by a 64-bit hash: a collision only drops a
good candidate.  What comes out does not depend on the number of workers or the block size.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from common import UserError
from tasks.kernels import kernel
from tasks.random_numbers import hash_prompts, order_keys
from tasks.task import SequenceSet, Task

STREAMS = {"test": 0, "validation": 1, "train": 2, "measure": 3}
_BLOCK_BYTES = 1 << 20


class SeenPrompts:
    """The set of prompts admitted so far, with room for ``capacity`` of them."""

    def __init__(self, capacity: int):
        self.table = np.zeros(1 << max(4, (2 * capacity).bit_length()), np.uint64)

    def add(self, sequences: SequenceSet) -> np.ndarray:
        """Add every prompt; return a mask (N,) of those that were new."""
        return Search(np.iinfo(np.int64).max, most=np.iinfo(np.int64).max).admit(self, sequences)


class Search:
    """A search for distinct prompts among candidates.

    It is over when ``wanted`` are found, and given up after a long stretch of candidates without
    a new one (twice as many as were found, at least 50,000) or ``most`` candidates, 50 per wanted
    prompt: then the task has no more, or so few that looking for them has no end.
    """

    def __init__(self, wanted: int, most: int | None = None):
        self.wanted, self.most = wanted, 50 * wanted + 100_000 if most is None else most
        self.counters = np.zeros(3, np.int64)  # found, examined since the last one, examined
        self.over = not wanted

    def admit(self, seen: SeenPrompts, block: SequenceSet) -> np.ndarray:
        """Add new prompts to ``seen`` until the search is over; return their mask (N,)."""
        keep = np.zeros(len(block), np.bool_)
        hashes = prompt_hashes(block)
        self.over = _admit(seen.table, hashes, keep, self.counters, self.wanted, self.most)
        return keep


def prompt_hashes(sequences: SequenceSet) -> np.ndarray:
    """Return a 64-bit hash of what is given of each sequence, (N,) uint64, none of them 0."""
    hashes = np.empty(len(sequences), np.uint64)
    hash_prompts(sequences.tokens, sequences.given_lengths, hashes)
    return np.maximum(hashes, np.uint64(1))


@kernel
def _admit(table, hashes, keep, counters, wanted, most):
    """Mark candidates with a new hash; return whether the search is over."""
    mask = np.uint64(len(table) - 1)
    for i in range(len(hashes)):
        if counters[0] >= wanted:
            return True
        if counters[1] >= max(50_000, 2 * counters[0]) or counters[2] >= most:
            return True
        slot = hashes[i] & mask
        while table[slot] != 0 and table[slot] != hashes[i]:
            slot = (slot + np.uint64(1)) & mask
        counters[1] += 1
        counters[2] += 1
        if table[slot] == 0:
            table[slot] = hashes[i]
            keep[i] = True
            counters[0] += 1
            counters[1] = 0
    return counters[0] >= wanted


def draw_set(
    task: Task,
    split: str,
    count: int,
    seed: int,
    seen: SeenPrompts,
    workers: int = 1,
    advance: Callable[[int], object] = lambda rows: None,
) -> SequenceSet:
    """Draw ``count`` sequences whose prompts are not in ``seen``, and add them to it.

    The training split follows `Task.training_mixture`; what a smaller size cannot give is filled
    up with the task's own.  `UserError` when there are too few distinct prompts.  ``advance`` is
    called with the number of rows added.
    """
    stream = STREAMS[split]
    out = SequenceSet.empty(count, task.max_len + 1, task.vocabulary.dtype, task.labelled)
    sizes = planned_sizes(task, split, count, seed)
    missing = np.empty(0, np.int64)
    for size in [*sorted(set(sizes.tolist()) - {task.size}), task.size]:
        rows = np.flatnonzero(sizes == size)
        if size == task.size and len(missing):
            rows = np.sort(np.concatenate([rows, missing]))
        search = Search(len(rows))
        found = 0
        for kept in _distinct(task, (seed, stream, size), search, seen, workers):
            _place(out, rows[found : found + len(kept)], kept)
            found += len(kept)
            advance(len(kept))
        if size != task.size:
            missing = np.concatenate([missing, rows[found:]])
        elif found < len(rows):
            outside = " outside the given sets" if split == "measure" else ""
            raise UserError(
                f"task {task.name} size={task.size} has too few distinct prompts{outside}: {split} "
                f"wants {count:,}, reached {count - len(rows) + found:,} after "
                f"{search.counters[2]:,} candidates; ask for fewer sequences or a larger size"
            )
    return out


def planned_sizes(task: Task, split: str, count: int, seed: int) -> np.ndarray:
    """Return the size of each of ``count`` sequences, (count,) int64.

    Each size's share is exact up to rounding, in an order drawn from the seed.
    """
    if split != "train":
        return np.full(count, task.size)
    mixture = task.training_mixture()
    if list(mixture) == [task.size]:
        return np.full(count, task.size)
    if abs(sum(mixture.values()) - 1) > 1e-6:
        raise UserError(f"task {task.name}: the shares of its training mixture do not add up to 1")
    exact = {size: share * count for size, share in mixture.items()}
    counts = {size: math.floor(value + 1e-9) for size, value in exact.items()}
    by_remainder = sorted(mixture, key=lambda size: (counts[size] - exact[size], -size))
    for size in by_remainder[: count - sum(counts.values())]:
        counts[size] += 1
    sizes = np.repeat(np.array(list(counts)), list(counts.values()))
    keys = np.empty(count, np.uint64)
    order_keys(seed, STREAMS[split], keys)
    return sizes[np.argsort(keys, kind="stable")]


def _distinct(
    task: Task, source: tuple[int, int, int], search: Search, seen: SeenPrompts, workers: int
) -> Iterator[SequenceSet]:
    """Yield blocks of admitted candidates of ``source`` (seed, stream, size), in their order."""
    seed, stream, size = source
    most = max(1, _BLOCK_BYTES // ((task.max_len + 1) * task.vocabulary.dtype.itemsize))
    if type(task).draw is Task.draw:  # plain Python: small blocks, so that progress is seen
        most = min(most, 256)
    block = min(most, 1 + search.wanted // workers)
    drawing: deque[Future[SequenceSet]] = deque()
    first = 0
    with ThreadPoolExecutor(workers) as pool:
        while not search.over:
            while len(drawing) < 2 * workers:
                drawing.append(pool.submit(task.draw, seed, stream, first, block, size))
                first += block
            candidates = drawing.popleft().result()
            keep = search.admit(seen, candidates)
            yield candidates if keep.all() else candidates.select(keep)
        pool.shutdown(cancel_futures=True)


def _place(out: SequenceSet, rows: np.ndarray, kept: SequenceSet) -> None:
    """Copy ``kept`` to ``rows`` of ``out``: as one slice when they follow each other."""
    if not len(rows):
        return
    together = rows[-1] - rows[0] + 1 == len(rows)
    target = slice(rows[0], rows[-1] + 1) if together else rows
    for name, array in kept.arrays.items():
        out.arrays[name][target] = array
