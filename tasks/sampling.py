"""Draw sets of sequences with distinct prompts, in one fixed order.

Prompts are compared by a 64-bit hash: a collision only drops a good candidate. The result does not
depend on the block size.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from tqdm import tqdm

from common import UserError
from tasks.kernels import kernel
from tasks.random_numbers import hash_prompts, random_integers
from tasks.sequences import SequenceSet
from tasks.task import Task

STREAMS = {"test": 0, "validation": 1, "train": 2, "measure": 3}
MAX_KINDS = 8
FOUND, WAITED, EXAMINED, PLANNED = range(4)  # counters of a `Search`; waited: since the last find
UNLIMITED = np.iinfo(np.int64).max
_BLOCK_BYTES = 1 << 20


class SeenPrompts:
    """The prompts admitted so far, with room for `capacity`."""

    def __init__(self, capacity: int):
        self.table = np.zeros(1 << max(4, (2 * capacity).bit_length()), np.uint64)

    def add(self, sequences: SequenceSet) -> np.ndarray:
        """Add every prompt; returns a mask (N,) of the new ones."""
        return Search(UNLIMITED, UNLIMITED, UNLIMITED).admit(self, sequences, None)


class Search:
    """A search for `wanted` distinct prompts, with a quota per kind.

    A kind's quota is its share of the first `wanted` candidates; a candidate whose prompt was seen
    is replaced by a later one of its kind. The search gives up after a long stretch without a new
    prompt (twice as many candidates as were found, at least `patience`), or after `most`
    candidates.
    """

    def __init__(self, wanted: int, most: int | None = None, patience: int = 50_000):
        self.wanted, self.most = wanted, 50 * wanted + 100_000 if most is None else most
        self.patience = patience
        self.planned, self.found = np.zeros((2, MAX_KINDS), np.int64)
        self.counters = np.zeros(4, np.int64)
        self.over = not wanted

    def admit(self, seen: SeenPrompts, block: SequenceSet, kinds: np.ndarray | None) -> np.ndarray:
        """Add new prompts to `seen` until the search is over; returns their mask (N,). `kinds` (N,)
        are the candidates' (`Task.kinds`), None if all are alike."""
        keep = np.zeros(len(block), np.bool_)
        if kinds is not None and kinds.max(initial=0) >= MAX_KINDS:  # unchecked in `_admit`
            raise ValueError(f"Task.kinds returns {kinds.max()}; kinds are 0 to {MAX_KINDS - 1}")
        kinds = np.zeros(len(block), int) if kinds is None else kinds.astype(int)
        hashes = hash_prompts(block.tokens, block.given_lengths)
        self.over = _admit(
            seen.table, hashes, kinds, keep, self.planned, self.found, self.counters,
            self.wanted, self.most, self.patience,
        )  # fmt: skip
        return keep


@kernel
def _admit(table, hashes, kinds, keep, planned, found, counters, wanted, most, patience):
    """Mark candidates with a quota left and a new hash; returns whether the search is over."""
    mask = np.uint64(len(table) - 1)
    for i in range(len(hashes)):
        if counters[FOUND] >= wanted:
            return True
        if counters[WAITED] >= max(patience, 2 * counters[FOUND]) or counters[EXAMINED] >= most:
            return True
        if counters[PLANNED] < wanted:
            planned[kinds[i]] += 1
            counters[PLANNED] += 1
        slot = hashes[i] & mask
        while table[slot] != 0 and table[slot] != hashes[i]:
            slot = (slot + np.uint64(1)) & mask
        counters[WAITED] += 1
        counters[EXAMINED] += 1
        if table[slot] == 0 and found[kinds[i]] < planned[kinds[i]]:
            table[slot] = hashes[i]
            keep[i] = True
            found[kinds[i]] += 1
            counters[FOUND] += 1
            counters[WAITED] = 0
    return counters[FOUND] >= wanted


def draw_set(
    task: Task,
    split: str,
    count: int,
    seed: int = 0,
    exclude: Sequence[SequenceSet] = (),
    progress: bool = False,
) -> SequenceSet:
    """`count` sequences with distinct prompts, none of them in `exclude`, sets of a task with the
    same vocabulary. split="measure" is for models measured at a setting they were not trained at.
    UserError if there are too few."""
    seen = SeenPrompts(count + sum(map(len, exclude)))
    for sequences in exclude:
        seen.add(sequences)
    return draw_sets(task, {split: count}, seed, seen, progress)[split]


def draw_sets(
    task: Task, counts: Mapping[str, int], seed: int, seen: SeenPrompts, progress: bool = False
) -> dict[str, SequenceSet]:
    """Draw the given number of sequences of each split with prompts not in `seen`, and add them.

    Training follows `Task.training_mixture`; the task's own size fills in what smaller sizes cannot
    give. Every split has the kinds (`Task.kinds`) of its first candidates; where a smaller size
    runs out of one kind, the others are cut to the same share. Raises UserError if there are too
    few distinct prompts.
    """
    out = {split: task.empty(count) for split, count in counts.items()}
    with tqdm(
        total=sum(counts.values()), desc=f"{task.name}-{task.size}", unit="seq", unit_scale=True,
        disable=None if progress else True,
    ) as bar:  # fmt: skip
        for split, count in counts.items():
            sizes = planned_sizes(task, split, count, seed)
            for size in [*np.unique(sizes[sizes != task.size]).tolist(), task.size]:
                rows = np.flatnonzero(sizes == size)
                found = _fill(task, seed, size, split, out[split], rows, seen, bar)
                sizes[rows[found:]] = task.size
            if found < len(rows):
                outside = " outside the given sets" if split == "measure" else ""
                raise UserError(
                    f"task {task.name} size={size} has too few distinct prompts{outside}: {split} "
                    f"wants {count:,}, found {count - len(rows) + found:,}; ask for fewer "
                    "sequences or a larger size"
                )
    return out


def _fill(
    task: Task,
    seed: int,
    size: int,
    split: str,
    out: SequenceSet,
    rows: np.ndarray,
    seen: SeenPrompts,
    bar: tqdm,
) -> int:
    """Write distinct sequences of one size to `rows` of `out`; returns how many there are."""
    block = max(1, _BLOCK_BYTES // ((task.max_len + 1) * task.vocabulary.dtype.itemsize))
    if type(task).draw_batch is Task.draw_batch:
        block = min(block, 256)  # plain Python: small blocks, so that progress is seen
    search, block = Search(len(rows)), min(block, 1 + len(rows))
    first = found = 0
    while not search.over:
        candidates = task.draw(seed, STREAMS[split], first, block, size)
        kept = candidates.select(search.admit(seen, candidates, task.kinds(candidates)))
        for name, array in kept.arrays.items():
            out.arrays[name][rows[found : found + len(kept)]] = array
        first, found = first + block, found + len(kept)
        bar.update(len(kept))
    if size == task.size:
        return found
    left = _balance(task, out, rows[:found], search)
    bar.update(left - found)
    return left


def _balance(task: Task, out: SequenceSet, rows: np.ndarray, search: Search) -> int:
    """Cut all kinds to the share of the one that ran out first; returns how many rows are left."""
    planned = search.planned[search.planned > 0]
    share = (search.found[search.planned > 0] / planned).min(initial=1)
    if share == 1 or len(planned) == 1 or not len(rows):
        return len(rows)
    kinds, most = task.kinds(out.select(rows)), (share * search.planned + 1e-9).astype(int)
    chosen = np.concatenate([np.flatnonzero(kinds == kind)[:n] for kind, n in enumerate(most)])
    for array in out.arrays.values():
        array[rows[: len(chosen)]] = array[rows[np.sort(chosen)]]
    return len(chosen)


def planned_sizes(task: Task, split: str, count: int, seed: int) -> np.ndarray:
    """The size of each sequence, (count,) int64: exact shares up to rounding, in random order."""
    mixture = task.training_mixture()
    if split != "train" or list(mixture) == [task.size]:
        return np.full(count, task.size)
    if abs(sum(mixture.values()) - 1) > 1e-6:
        raise UserError(f"task {task.name}: the shares of its training mixture do not add up to 1")
    exact = {size: share * count for size, share in mixture.items()}
    counts = {size: math.floor(value + 1e-9) for size, value in exact.items()}
    by_remainder = sorted(mixture, key=lambda size: (counts[size] - exact[size], -size))
    for size in by_remainder[: count - sum(counts.values())]:
        counts[size] += 1
    sizes = np.repeat(np.array(list(counts)), list(counts.values()))
    order = random_integers(seed, STREAMS[split], 0, 0, 1, count)[0]
    return sizes[np.argsort(order, kind="stable")]
