"""Draw sets of sequences with distinct prompts, in parallel, in one fixed order.

Threads draw blocks of candidates (kernels release the GIL); one loop admits them by index. Prompts
are compared by a 64-bit hash: a collision only drops a good candidate. The result does not depend
on the number of workers or the block size.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from common import UserError
from tasks.kernels import kernel
from tasks.random_numbers import fill, hash_prompts
from tasks.task import SequenceSet, Task

STREAMS = {"test": 0, "validation": 1, "train": 2, "measure": 3}
_BLOCK_BYTES = 1 << 20


class SeenPrompts:
    """The prompts admitted so far, with room for `capacity`."""

    def __init__(self, capacity: int):
        self.table = np.zeros(1 << max(4, (2 * capacity).bit_length()), np.uint64)

    def add(self, sequences: SequenceSet) -> np.ndarray:
        """Add every prompt; returns a mask (N,) of the new ones."""
        return Search(np.iinfo(np.int64).max, most=np.iinfo(np.int64).max).admit(self, sequences)


Stratum = tuple[int, int]  # group and kind


class Search:
    """A search for `wanted` distinct prompts, with a quota per stratum.

    A stratum's quota is its share of the first `wanted` candidates, at most `limits`; a candidate
    whose prompt was seen is replaced by a later one of its stratum. The search gives up after a
    long stretch without a new prompt (twice as many candidates as were found, at least 50,000), or
    after `most` candidates, 50 per wanted prompt.
    """

    def __init__(
        self, wanted: int, limits: Mapping[Stratum, int] | None = None, most: int | None = None
    ):
        self.wanted, self.most = wanted, 50 * wanted + 100_000 if most is None else most
        self.limits = {} if limits is None else limits
        self.numbers: dict[Stratum, int] = {}  # of each stratum its column in `counts`
        self.counts = np.zeros((3, 0), np.int64)  # of each stratum: limit, planned, found
        self.counters = np.zeros(4, np.int64)  # found, since the last one, examined, planned
        self.over = not wanted

    @property
    def planned(self) -> Counter[Stratum]:
        return Counter({stratum: int(self.counts[1, i]) for stratum, i in self.numbers.items()})

    @property
    def found(self) -> Counter[Stratum]:
        return Counter({stratum: int(self.counts[2, i]) for stratum, i in self.numbers.items()})

    def admit(
        self, seen: SeenPrompts, block: SequenceSet, strata: np.ndarray | None = None
    ) -> np.ndarray:
        """Add new prompts to `seen` until the search is over; returns their mask (N,). `strata` (N,
        2) are the candidates' (`Task.strata`), None if all are alike."""
        keep = np.zeros(len(block), np.bool_)
        numbers = self._numbered(np.zeros((1, 2), np.int64) if strata is None else strata)
        numbers = np.broadcast_to(numbers, len(block))
        self.over = _admit(
            seen.table, prompt_hashes(block), numbers, keep, self.counts, self.counters,
            self.wanted, self.most,
        )  # fmt: skip
        return keep

    def _numbered(self, strata: np.ndarray) -> np.ndarray:
        """Columns in `counts` of `strata` (N, 2), (N,); adds new ones."""
        codes = strata[:, 0].astype(np.int64) << 16 | strata[:, 1]
        distinct, inverse = np.unique(codes, return_inverse=True)
        known = [divmod(code, 1 << 16) for code in distinct.tolist()]
        new = [stratum for stratum in known if stratum not in self.numbers]
        self.numbers |= {stratum: len(self.numbers) + i for i, stratum in enumerate(new)}
        added = np.zeros((3, len(new)), np.int64)
        added[0] = [self.limits.get(stratum, self.wanted) for stratum in new]
        self.counts = np.hstack([self.counts, added])
        return np.array([self.numbers[stratum] for stratum in known])[inverse]


def prompt_hashes(sequences: SequenceSet) -> np.ndarray:
    """A nonzero 64-bit hash of the given tokens of each sequence, (N,) uint64."""
    hashes = np.empty(len(sequences), np.uint64)
    hash_prompts(sequences.tokens, sequences.given_lengths, hashes)
    return np.maximum(hashes, np.uint64(1))


@kernel
def _admit(table, hashes, strata, keep, counts, counters, wanted, most):
    """Mark candidates with a quota left and a new hash; returns whether the search is over."""
    limits, planned, found = counts
    mask = np.uint64(len(table) - 1)
    for i in range(len(hashes)):
        if counters[0] >= wanted:
            return True
        if counters[1] >= max(50_000, 2 * counters[0]) or counters[2] >= most:
            return True
        stratum = strata[i]
        if counters[3] < wanted and planned[stratum] < limits[stratum]:
            planned[stratum] += 1
            counters[3] += 1
        slot = hashes[i] & mask
        while table[slot] != 0 and table[slot] != hashes[i]:
            slot = (slot + np.uint64(1)) & mask
        counters[1] += 1
        counters[2] += 1
        if table[slot] == 0 and found[stratum] < planned[stratum]:
            table[slot] = hashes[i]
            keep[i] = True
            found[stratum] += 1
            counters[0] += 1
            counters[1] = 0
    return counters[0] >= wanted


def draw_set(
    task: Task, split: str, count: int, seed: int, seen: SeenPrompts, workers: int = 1
) -> SequenceSet:
    """`draw_sets` for one split."""
    return draw_sets(task, {split: count}, seed, seen, workers)[0][split]


def draw_sets(
    task: Task,
    counts: Mapping[str, int],
    seed: int,
    seen: SeenPrompts,
    workers: int = 1,
    advance: Callable[[int], object] = lambda rows: None,
) -> tuple[dict[str, SequenceSet], list[dict[str, Any]]]:
    """Draw the given number of sequences of each split with prompts not in `seen`, and add them.

    Training follows `Task.training_mixture`; the task's own size fills up what smaller sizes cannot
    give. Within a size, every split has the strata (`Task.strata`) of its first candidates. A group
    that runs out of prompts gets the same share of its quota in each kind and split, and other
    groups fill up. Raises UserError if there are too few distinct prompts. `advance` is called with
    the number of rows added. Also returns what ran out: for each such size, sequences planned and
    found per split, and the groups.
    """
    sizes = {split: planned_sizes(task, split, count, seed) for split, count in counts.items()}
    out = {split: task.empty(count) for split, count in counts.items()}
    missing = {split: np.empty(0, np.int64) for split in counts}
    ran_out = []
    smaller = set(np.concatenate([*sizes.values(), []]).astype(int).tolist()) - {task.size}
    for size in [*sorted(smaller), task.size]:
        rows = {split: np.flatnonzero(own == size) for split, own in sizes.items()}
        if size == task.size:
            rows = {split: np.sort(np.concatenate([rows[split], missing[split]])) for split in rows}
        source = task, seed, size
        searches, groups = _draw_size(source, out, rows, seen, workers, advance)
        found = {split: int(search.counters[0]) for split, search in searches.items()}
        planned = {split: len(own) for split, own in rows.items()}
        if groups or found != planned:
            ran_out.append({"size": size, "planned": planned, "found": found, "groups": groups})
        for split, search in searches.items():
            missing[split] = np.concatenate([missing[split], rows[split][found[split] :]])
            if size == task.size and found[split] < planned[split]:
                outside = " outside the given sets" if split == "measure" else ""
                reached = counts[split] - planned[split] + found[split]
                raise UserError(
                    f"task {task.name} size={size} has too few distinct prompts{outside}: {split} "
                    f"wants {counts[split]:,}, reached {reached:,} after {search.counters[2]:,} "
                    "candidates; ask for fewer sequences or a larger size"
                )
    return out, ran_out


def _draw_size(
    source: tuple[Task, int, int],
    out: dict[str, SequenceSet],
    rows: dict[str, np.ndarray],
    seen: SeenPrompts,
    workers: int,
    advance: Callable[[int], object],
) -> tuple[dict[str, Search], list[int]]:
    """Fill the `rows` of each split with sequences of one size; returns the groups that ran out. A
    group's prompts are counted by running out: it is then limited, and everything is drawn
    again."""
    task, _, size = source
    limits: dict[str, dict[Stratum, int]] = {split: {} for split in rows}
    wanted = {split: len(own) for split, own in rows.items()}
    before = seen.table.copy()
    while True:
        searches = {}
        for split, own in rows.items():
            searches[split] = search = Search(wanted[split], limits[split])
            for kept in _distinct(source, split, search, seen, workers):
                found = int(search.counters[0])
                places: Any = own[found - len(kept) : found]
                if len(kept) and places[-1] - places[0] + 1 == len(kept):  # faster as a slice
                    places = slice(places[0], places[-1] + 1)
                for name, array in kept.arrays.items():
                    out[split].arrays[name][places] = array
                advance(len(kept))
        groups = {group for search in searches.values() for group, _ in search.planned}
        fillable = len(groups) > 1 or size < task.size
        if not fillable or not _limit(searches, limits):
            return searches, sorted({group for own in limits.values() for group, _ in own})
        for split, search in searches.items():
            if search.planned.keys() <= limits[split].keys():
                wanted[split] = sum(limits[split].values())
        seen.table[:] = before
        advance(-sum(int(search.counters[0]) for search in searches.values()))


def _limit(searches: dict[str, Search], limits: dict[str, dict[Stratum, int]]) -> bool:
    """Limit groups that ran out to nine tenths of their prompts (the last take long to find),
    equally in all kinds and splits; returns whether any did."""
    planned = sum((search.planned for search in searches.values()), Counter())
    found = sum((search.found for search in searches.values()), Counter())
    if len(planned) == 1:
        return False  # nothing else could fill up
    kinds = {kind for _, kind in planned}
    short = {stratum[0] for stratum in planned if found[stratum] < planned[stratum]}
    for group in short:
        strata = [(group, kind) for kind in kinds]
        least = min(strata, key=lambda s: found[s] / planned[s] if planned[s] else 0)
        for split, search in searches.items():
            for stratum in strata:
                own = search.planned[stratum]
                limits[split][stratum] = 9 * own * found[least] // (10 * max(planned[least], 1))
    return bool(short)


def planned_sizes(task: Task, split: str, count: int, seed: int) -> np.ndarray:
    """The size of each of `count` sequences, (count,) int64: exact shares up to rounding, in a
    random order."""
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
    order = np.empty((1, count), np.uint64)
    fill(seed, STREAMS[split], 0, 0, order)
    return sizes[np.argsort(order[0], kind="stable")]


def _distinct(
    source: tuple[Task, int, int], split: str, search: Search, seen: SeenPrompts, workers: int
) -> Iterator[SequenceSet]:
    """Yield blocks of admitted candidates of `source` (task, seed, size), in order."""
    task, seed, size = source
    most = max(1, _BLOCK_BYTES // ((task.max_len + 1) * task.vocabulary.dtype.itemsize))
    if type(task).draw_batch is Task.draw_batch:
        most = min(most, 256)  # plain Python: small blocks, so that progress is seen
    block = min(most, 1 + search.wanted // workers)

    def draw(first: int) -> tuple[SequenceSet, np.ndarray | None]:
        drawn = task.draw(seed, STREAMS[split], first, block, size)
        return drawn, task.strata(drawn)

    drawing: deque[Future[tuple[SequenceSet, np.ndarray | None]]] = deque()
    first = 0
    with ThreadPoolExecutor(workers) as pool:
        while not search.over:
            while len(drawing) < 2 * workers:
                drawing.append(pool.submit(draw, first))
                first += block
            candidates, strata = drawing.popleft().result()
            keep = search.admit(seen, candidates, strata)
            yield candidates if keep.all() else candidates.select(keep)
        pool.shutdown(cancel_futures=True)
