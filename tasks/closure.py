"""The closure problem (A_{F,r})*: can a word be cut into short pieces with products in F?"""

import functools
import math
from typing import Any

import numpy as np

from common import UserError
from tasks.monoids import monoid_of
from tasks.random_numbers import random_numbers
from tasks.sequences import SequenceSet
from tasks.task import Task, in_proportion, misplaced
from tasks.words import choose, prefix_products

OWN = ("<sep>", "yes", "no", "reach", "lost")
YES, NO, REACH, LOST, FIRST = range(3, 8)  # ids, after padding and EOS
_YES, _ENDS_OUTSIDE, _GAP_TOO_LONG = range(3)  # kinds


class Closure(Task):
    """Words of `size` letters over a group that are, or are not, a product of pieces in F.

    A piece has 1 .. r letters and a product in F (Allender, Arvind and Mahajan 2003). Let b_0 be
    true, and b_i true if the first i letters can be cut: if some b_j is, i - r <= j < i, with
    w_(j+1) .. w_i in F. The answer is b_n. F must be a subgroup, so the answer is yes iff p_n is in
    F and no more than r letters pass between visits of the products p_i to F. The chain lists p_i
    and b_i.

    `subset` lists F (null: the stabiliser of point 1 in A5 and S5, see `tasks.monoids`); `r`
    defaults to twice F's index. Half of the words are yes, a quarter end outside F, and a quarter
    end in F after one gap of r + 1 .. 2r letters (`draw_visits`). format="direct" trains on all
    sizes from r + 2 to `size`.

    Example (S3, F = {123, 132}, r = 2, size 5)::

        prompt  213 312 123 213 312 <sep>
        chain   213 lost 132 reach 132 reach 231 lost 123 reach <sep>
        answer  yes
    """

    name = "closure"
    generator_version = 5
    kind_names = ("yes", "ends outside F", "gap too long")

    def __init__(
        self,
        size: int,
        format: str = "cot",
        monoid: str = "A5",
        subset: list[Any] | None = None,
        r: int | None = None,
        capacity: int | None = None,
    ):
        super().__init__(size, format, capacity)
        self.monoid, self.subset = monoid, subset
        self._monoid = monoid_of(monoid)
        if not self._monoid.is_group:
            raise UserError(f"task closure: monoid={monoid} is not a group")
        self._subgroup = self._checked_subgroup(subset)
        self._index = len(self._monoid) // len(self._subgroup)
        self.r = 2 * self._index if r is None else self.whole_number("r", r, 1)
        if self.size < self.r + 2:
            raise UserError(
                f"task closure: size={size} must be at least r + 2 = {self.r + 2}: shorter words "
                "have no room for a gap that is too long"
            )

    def _checked_subgroup(self, subset: list[Any] | None) -> tuple[int, ...]:
        if subset is None:
            return self._monoid.subgroup
        numbers = tuple(sorted(self._monoid.numbers_of("subset", subset)))
        if self._monoid.generated(list(numbers)) != numbers:
            raise UserError(
                f"task closure: subset={','.join(map(str, subset))} is not a subgroup of "
                f"{self.monoid}: products of its elements, or the identity, are missing"
            )
        if len(numbers) == len(self._monoid):
            raise UserError(f"task closure: subset is all of {self.monoid}: every answer is yes")
        return numbers

    @property
    def own_tokens(self) -> list[str]:
        return [*OWN, *self._monoid.elements]

    @property
    def max_len(self) -> int:
        return self.size + 2 + (2 * self.size + 1 if self.format == "cot" else 0)

    def training_mixture(self) -> dict[int, float]:
        least = self.size if self.format == "cot" else self.r + 2
        return in_proportion(range(least, self.size + 1))

    def solve(self, prompt: list[str]) -> tuple[list[str], list[str]]:
        state, last, chain, reached = 0, 0, [], True
        for i, letter in enumerate(prompt[:-1], start=1):
            state = int(self._monoid.table[state, self._monoid.number[letter]])
            reached = state in self._subgroup and i - last <= self.r
            last = i if reached else last
            chain += [self._monoid.elements[state], "reach" if reached else "lost"]
        return [*chain, "<sep>"], ["yes" if reached else "no"]

    def check_prompt(self, prompt: list[str]) -> str | None:
        letters = len(prompt) - 1
        least = 1 if self.format == "direct" else self.size
        if not least <= letters <= self.size:
            return f"the prompt has {letters} letters, outside {least} to {self.size}"
        return misplaced(prompt[:-1], self._monoid.number, f"an element of {self.monoid}")

    def draw_batch(self, seed: int, stream: int, first: int, count: int, size: int) -> SequenceSet:
        """Products are uniform in F where it is visited, uniform outside F elsewhere; each letter
        leads from one product to the next."""
        numbers = random_numbers(seed, stream, size, first, count, 2 * size + 1)
        visits = draw_visits(self._index, self.r, numbers[:, : size + 1])  # (N, n)
        inside = np.array(self._subgroup)
        outside = np.setdiff1d(np.arange(len(self._monoid)), inside)
        numbers = numbers[:, size + 1 :]
        products = np.where(
            visits, inside[choose(numbers, len(inside))], outside[choose(numbers, len(outside))]
        )
        before = np.pad(products[:, :-1], ((0, 0), (1, 0)))
        letters = self._monoid.table[self._monoid.inverse[before], products]
        reached = np.zeros_like(visits)  # (N, n), b_1 .. b_n
        last = np.zeros(count, np.int64)
        for i in range(size):
            reached[:, i] = visits[:, i] & (i + 1 - last <= self.r)
            last[reached[:, i]] = i + 1
        chain = np.stack([products + FIRST, np.where(reached, REACH, LOST)], axis=2)
        answer = np.where(reached[:, -1:], YES, NO)
        return self.join(letters + FIRST, chain.reshape(count, 2 * size), answer)

    def kinds(self, sequences: SequenceSet) -> np.ndarray:
        size = int(sequences.prompt_lengths[0]) - 1
        products = prefix_products(self._monoid, sequences.tokens[:, :size].astype(int) - FIRST)
        kinds = np.where(np.isin(products[:, -1], self._subgroup), _GAP_TOO_LONG, _ENDS_OUTSIDE)
        kinds[sequences.last_tokens == YES] = _YES
        return kinds

    def state_bits(self) -> float:
        """The products determine the word: log2 of the words of all kinds. No chain: a bit."""
        if self.format == "direct":
            return 1.0
        share = gap_weights(self._index, self.r, self.size)[:, self.size].sum()  # of all words
        return self.size * math.log2(len(self._monoid)) + math.log2(share)


@functools.lru_cache(maxsize=256)
def gap_weights(index: int, r: int, size: int) -> np.ndarray:
    """(3, size + 1, 2r + 1): by kind and letters left, weights of the number of letters to the next
    visit; entry 0 is the weight of no further visit.

    What is left must have gaps of at most r and end with a visit (kind 0), have such gaps and end 1
    .. r letters after the last visit (kind 1), or end with a visit and have one gap of r + 1 .. 2r
    (kind 2). A weight counts all ways to continue after the gap.
    """
    gap = (1 - 1 / index) ** (np.arange(2 * r + 1) - 1) / index  # of d letters; gap[0] is not used
    shares = np.zeros((3, size + 1, 2 * r + 1))
    total = np.zeros((3, size + 1))
    total[_YES, 0] = 1
    for left in range(1, size + 1):
        for d in range(1, min(2 * r, left) + 1):
            rest = total[:, left - d]
            if d > r:
                rest = np.array([0.0, 0.0, rest[_YES]])
            shares[:, left, d] = gap[d] * rest
        if left <= r:
            shares[_ENDS_OUTSIDE, left, 0] = (1 - 1 / index) ** left
        total[:, left] = shares[:, left].sum(axis=1)
    return shares


def draw_visits(index: int, r: int, numbers: np.ndarray) -> np.ndarray:
    """Whether F is visited at each of n letters, (N, n), from `numbers` (N, n + 1) in [0, 1).

    Visits of a uniform word are a renewal process: each product is in F with probability 1 / index
    independently, so gaps are geometric. Here they are drawn given the kind: half of the rows kind
    0, a quarter each kinds 1 and 2; n is at least r + 1.
    """
    count, size = len(numbers), numbers.shape[1] - 1
    cumulative = gap_weights(index, r, size).cumsum(axis=2)
    kind = np.maximum((numbers[:, 0] * 4).astype(np.int64) - 1, 0)  # quarters: 0, 0, 1, 2
    visits = np.zeros((count, size), bool)
    at, rows = np.zeros(count, np.int64), np.arange(count)
    for i in range(size):
        shares = cumulative[kind[rows], size - at[rows]]  # (n, 2r + 1)
        gap = (shares <= numbers[rows, 1 + i, None] * shares[:, -1:]).sum(axis=1)
        rows, gap = rows[gap > 0], gap[gap > 0]
        at[rows] += gap
        visits[rows, at[rows] - 1] = True
        kind[rows[gap > r]] = _YES
        rows = rows[at[rows] < size]
    return visits
