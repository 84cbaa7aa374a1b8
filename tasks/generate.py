"""Draw sets of sequences with distinct prompts, in one fixed order.

Prompts are compared by a 64-bit hash: a collision only drops a good candidate. The result does not
depend on the block size.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from common import UserError
from tasks.kernels import kernel
from tasks.random_numbers import fill, hash_prompts
from tasks.sequences import SequenceSet
from tasks.task import Task

STREAMS = {"test": 0, "validation": 1, "train": 2, "measure": 3}
MAX_KINDS = 8  # in a group (`Task.strata`)
FOUND, WAITED, EXAMINED, PLANNED = range(4)  # counters of a `Search`; waited: since the last find
UNLIMITED = np.iinfo(np.int64).max
_BLOCK_BYTES = 1 << 20


class SeenPrompts:
    """The prompts admitted so far, with room for `capacity`."""

    def __init__(self, capacity: int):
        self.table = np.zeros(1 << max(4, (2 * capacity).bit_length()), np.uint64)

    def add(self, sequences: SequenceSet) -> np.ndarray:
        """Add every prompt; returns a mask (N,) of the new ones."""
        return Search(UNLIMITED, no_limits(0), UNLIMITED, UNLIMITED).admit(self, sequences, None)


class Search:
    """A search for `wanted` distinct prompts, with a quota per stratum.

    A stratum's quota is its share of the first `wanted` candidates, at most `limits` (groups,
    kinds); a candidate whose prompt was seen is replaced by a later one of its stratum. The search
    gives up after a long stretch without a new prompt (twice as many candidates as were found, at
    least `patience`), or after `most` candidates.
    """

    def __init__(
        self, wanted: int, limits: np.ndarray, most: int | None = None, patience: int = 50_000
    ):
        self.wanted, self.most = wanted, 50 * wanted + 100_000 if most is None else most
        self.limits, self.patience = limits, patience
        self.planned, self.found, self.drawn = np.zeros((3, *limits.shape), np.int64)
        self.counters = np.zeros(4, np.int64)
        self.over = not wanted

    def admit(self, seen: SeenPrompts, block: SequenceSet, strata: np.ndarray | None) -> np.ndarray:
        """Add new prompts to `seen` until the search is over; returns their mask (N,). `strata` (N,
        2) are the candidates' (`Task.strata`), None if all are alike."""
        keep = np.zeros(len(block), np.bool_)
        strata = np.zeros((len(block), 2), int) if strata is None else strata.astype(int)
        self.drawn[strata[:, 0], strata[:, 1]] = 1
        self.over = _admit(
            seen.table, prompt_hashes(block), strata, keep, self.limits, self.planned, self.found,
            self.counters, self.wanted, self.most, self.patience,
        )  # fmt: skip
        return keep


def no_limits(size: int) -> np.ndarray:
    """Limits (groups, kinds) of the strata of sequences of `size`."""
    return np.full((size + 1, MAX_KINDS), UNLIMITED)


def prompt_hashes(sequences: SequenceSet) -> np.ndarray:
    """A nonzero 64-bit hash of the given tokens of each sequence, (N,) uint64."""
    hashes = np.empty(len(sequences), np.uint64)
    hash_prompts(sequences.tokens, sequences.given_lengths, hashes)
    return np.maximum(hashes, np.uint64(1))


@kernel
def _admit(table, hashes, strata, keep, limits, planned, found, counters, wanted, most, patience):
    """Mark candidates with a quota left and a new hash; returns whether the search is over."""
    mask = np.uint64(len(table) - 1)
    for i in range(len(hashes)):
        if counters[FOUND] >= wanted:
            return True
        if counters[WAITED] >= max(patience, 2 * counters[FOUND]) or counters[EXAMINED] >= most:
            return True
        stratum = strata[i, 0], strata[i, 1]
        if counters[PLANNED] < wanted and planned[stratum] < limits[stratum]:
            planned[stratum] += 1
            counters[PLANNED] += 1
        slot = hashes[i] & mask
        while table[slot] != 0 and table[slot] != hashes[i]:
            slot = (slot + np.uint64(1)) & mask
        counters[WAITED] += 1
        counters[EXAMINED] += 1
        if table[slot] == 0 and found[stratum] < planned[stratum]:
            table[slot] = hashes[i]
            keep[i] = True
            found[stratum] += 1
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
    return draw_sets(task, {split: count}, seed, seen, progress)[0][split]


def draw_sets(
    task: Task, counts: Mapping[str, int], seed: int, seen: SeenPrompts, progress: bool = False
) -> tuple[dict[str, SequenceSet], list[dict[str, Any]]]:
    """Draw the given number of sequences of each split with prompts not in `seen`, and add them.

    Training follows `Task.training_mixture`; the task's own size fills in what smaller sizes cannot
    give. Within a size, every split has the strata (`Task.strata`) of its first candidates. A group
    that runs out of prompts gets the same share of its quota in each kind and split, and other
    groups fill up. Raises UserError if there are too few distinct prompts. Also returns what ran
    out: for each such size, sequences planned and found per split, and the groups.
    """
    sizes = {split: planned_sizes(task, split, count, seed) for split, count in counts.items()}
    out = {split: task.empty(count) for split, count in counts.items()}
    missing = {split: np.empty(0, np.int64) for split in counts}
    ran_out = []
    smaller = {int(size) for own in sizes.values() for size in np.unique(own)} - {task.size}
    bar = tqdm(
        total=sum(counts.values()), desc=f"{task.name}-{task.size}", unit="seq", unit_scale=True,
        disable=None if progress else True,
    )  # fmt: skip
    for size in [*sorted(smaller), task.size]:
        rows = {split: np.flatnonzero(own == size) for split, own in sizes.items()}
        if size == task.size:
            rows = {split: np.sort(np.concatenate([rows[split], missing[split]])) for split in rows}
        searches, groups = _draw_size(task, seed, size, out, rows, seen, bar)
        found = {split: int(search.counters[FOUND]) for split, search in searches.items()}
        planned = {split: len(own) for split, own in rows.items()}
        if groups or found != planned:
            ran_out.append({"size": size, "planned": planned, "found": found, "groups": groups})
        for split, search in searches.items():
            missing[split] = np.concatenate([missing[split], rows[split][found[split] :]])
            if size == task.size and found[split] < planned[split]:
                outside = " outside the given sets" if split == "measure" else ""
                reached = counts[split] - planned[split] + found[split]
                examined = int(search.counters[EXAMINED])
                raise UserError(
                    f"task {task.name} size={size} has too few distinct prompts{outside}: {split} "
                    f"wants {counts[split]:,}, found {reached:,} after {examined:,} "
                    "candidates; ask for fewer sequences or a larger size"
                )
    bar.close()
    return out, ran_out


def _draw_size(
    task: Task,
    seed: int,
    size: int,
    out: dict[str, SequenceSet],
    rows: dict[str, np.ndarray],
    seen: SeenPrompts,
    bar: tqdm,
) -> tuple[dict[str, Search], list[int]]:
    """Fill the `rows` of each split with sequences of one size. Groups that run out are limited,
    and everything is drawn again. Returns the searches and those groups."""
    limits = {split: no_limits(size) for split in rows}
    wanted = {split: len(own) for split, own in rows.items()}
    before = seen.table.copy()
    while True:
        searches = {}
        for split, own in rows.items():
            searches[split] = search = Search(wanted[split], limits[split])
            for kept in _distinct(task, seed, size, split, search, seen):
                found = int(search.counters[FOUND])
                for name, array in kept.arrays.items():
                    out[split].arrays[name][own[found - len(kept) : found]] = array
                bar.update(len(kept))
        groups = sum(search.drawn for search in searches.values()).any(axis=1)
        fillable = groups.sum() > 1 or size < task.size
        if not fillable or not _limit(searches, limits):
            limited = [own.min(axis=1) < UNLIMITED for own in limits.values()]
            return searches, np.flatnonzero(np.any(limited, axis=0)).tolist()
        for split, search in searches.items():
            is_limited = limits[split] < UNLIMITED
            if is_limited[search.drawn > 0].all():
                wanted[split] = int(limits[split][is_limited].sum())
        seen.table[:] = before
        bar.update(-sum(int(search.counters[FOUND]) for search in searches.values()))


def _limit(searches: dict[str, Search], limits: dict[str, np.ndarray]) -> bool:
    """Limit groups that ran out to nine tenths of their prompts (the last ones take long to find),
    equally in all kinds and splits; returns whether any did."""
    planned = np.sum([search.planned for search in searches.values()], axis=0)  # (groups, kinds)
    found = np.sum([search.found for search in searches.values()], axis=0)
    if (planned > 0).sum() == 1:
        return False  # nothing else could fill up
    short = (found < planned).any(axis=1)
    kinds = planned.any(axis=0)
    shares = np.where(kinds, found / np.maximum(planned, 1), np.inf)
    least = np.arange(len(shares)), shares.argmin(axis=1)
    ran_out = short[:, None] & kinds
    for split, search in searches.items():
        nine_tenths = 9 * search.planned * found[least][:, None]
        nine_tenths //= 10 * np.maximum(planned[least], 1)[:, None]
        limits[split][ran_out] = nine_tenths[ran_out]
    return bool(short.any())


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
    order = np.empty((1, count), np.uint64)
    fill(seed, STREAMS[split], 0, 0, order)
    return sizes[np.argsort(order[0], kind="stable")]


def _distinct(
    task: Task, seed: int, size: int, split: str, search: Search, seen: SeenPrompts
) -> Iterator[SequenceSet]:
    """Yield blocks of admitted candidates, in order."""
    block = max(1, _BLOCK_BYTES // ((task.max_len + 1) * task.vocabulary.dtype.itemsize))
    if type(task).draw_batch is Task.draw_batch:
        block = min(block, 256)  # plain Python: small blocks, so that progress is seen
    block = min(block, 1 + search.wanted)
    first = 0
    while not search.over:
        candidates = task.draw(seed, STREAMS[split], first, block, size)
        first += block
        keep = search.admit(seen, candidates, task.strata(candidates))
        yield candidates if keep.all() else candidates.select(keep)
