"""LIS: the length of the longest strictly increasing subsequence."""

import itertools
import math

import numpy as np

from tasks.kernels import kernel
from tasks.random_numbers import below, start
from tasks.sequences import MAX_VOCABULARY, Example, SequenceSet
from tasks.task import FORMATS, Task, misplaced

MAX_NUMBER_RANGE = MAX_VOCABULARY - 2  # padding, EOS, the marker, and the numbers from 1


class LIS(Task):
    """`size` integers in [n + 1, number_range); 1 .. n are the tokens of lengths.

    n is `capacity`, or `size`. One to three increasing runs are planted at random places, the rest
    is uniform, as in CoT_benchmark (Feng et al. 2023). The chain gives the length of the longest
    strictly increasing subsequence ending at each position; the answer is the largest.
    `number_range` None means max(250, 2n + 1): 250 as in CoT_benchmark's samples, and room for n
    distinct numbers. With format="tagged" or "online", the lengths are labels.

    Example (size 6)::

        prompt  56 146 115 222 151 88 <sep>
        chain   1 2 2 3 3 2 <sep>
        answer  3
    """

    name = "lis"
    formats = FORMATS

    def __init__(
        self,
        size: int,
        format: str = "cot",
        number_range: int | None = None,
        capacity: int | None = None,
    ):
        super().__init__(size, format, capacity)
        least = 2 * self.largest_size + 1
        self.number_range = max(250, least)
        if number_range is not None:
            self.number_range = self.whole_number(
                "number_range", number_range, least, MAX_NUMBER_RANGE
            )

    @property
    def own_tokens(self) -> list[str]:
        return ["<sep>", *map(str, range(1, self.number_range))]

    @property
    def max_len(self) -> int:
        """2n + 3 with a chain, n + 2 without, n + 1 with tags, 2n online."""
        n = self.size
        return {"cot": 2 * n + 3, "direct": n + 2, "tagged": n + 1, "online": 2 * n}[self.format]

    @property
    def line_ends(self) -> list[str]:
        return self.own_tokens[: 1 + self.largest_size]  # the marker and the chain's numbers

    @property
    def longest_lines(self) -> tuple[int, int]:
        return super().longest_lines if self.labelled else (self.size + 1, 1)

    def solve(self, prompt: list[str]) -> tuple[list[str], list[str]]:
        numbers = [int(token) for token in prompt[:-1]]
        best: list[int] = []
        for i, number in enumerate(numbers):
            best.append(1 + max((best[j] for j in range(i) if numbers[j] < number), default=0))
        return [*map(str, best), "<sep>"], [str(max(best))]

    def check_prompt(self, prompt: list[str]) -> str | None:
        if len(prompt) - 1 != self.size:
            return f"the prompt has {len(prompt) - 1} numbers, not {self.size}"
        numbers = set(self.own_tokens[1 + self.largest_size :])
        return misplaced(prompt[:-1], numbers, f"a number above {self.largest_size}")

    def dependencies(self, example: Example) -> list[list[int]]:
        """A length needs all numbers up to its own and all earlier lengths, the answer all."""
        n = len(example.prompt) - 1
        chain = [[*range(i + 1), *range(n + 1, n + 1 + i)] for i in range(n)]
        return [*chain, [], list(range(n + 1, 2 * n + 1))]

    def draw_batch(self, seed: int, stream: int, first: int, count: int, size: int) -> SequenceSet:
        numbers, lengths = np.empty((2, count, size), self.vocabulary.dtype)  # (N, n) each
        longest = np.empty((count, 1), self.vocabulary.dtype)
        low, high = self.largest_size + 1, self.number_range
        _draw(seed, stream, first, low, high, numbers, lengths, longest)
        return self.join(numbers, lengths, longest)

    def state_bits(self) -> float:
        """Chains are restricted growth sequences: Bell(n). Labels depend on each length's
        smallest last number: before the last label, a set of at most n - 1 below the largest."""
        if self.format == "direct":
            return math.log2(self.size)
        if self.labelled:
            values = self.number_range - self.largest_size - 2
            return math.log2(sum(math.comb(values, k) for k in range(self.size)))
        row = [1]  # of the Bell triangle
        for _ in range(self.size - 1):
            row = list(itertools.accumulate(row, initial=row[-1]))
        return math.log2(row[-1])


# Ids: PAD, EOS, the marker, then the number v at v + 2.
_SEP = 2


@kernel
def _choose(state, chosen, n, count):
    """Set exactly `count` of the first `n` flags, uniformly."""
    few = 2 * count <= n
    for i in range(n):
        chosen[i] = not few
    for _ in range(count if few else n - count):
        i = below(state, n)
        while chosen[i] == few:
            i = below(state, n)
        chosen[i] = few


@kernel
def _run_lengths(state, size):
    """Draw three run lengths, possibly 0: in total `min(3, size)` (CoT_benchmark: 3) to `size`."""
    runs = 1 + below(state, 3)
    least = min(3, size)
    total = least + below(state, size - least + 1)
    if runs == 1:
        return total, 0, 0
    if runs == 2:
        one = 1 + below(state, total // 2 + 1)
        return one, total - one, 0
    one = 1 + below(state, total // 3 + 1)
    two = min(1 + below(state, (total - one) // 2 + 1), total - one)
    return one, two, total - one - two


@kernel
def _draw_numbers(state, size, low, values, chosen, planted, numbers):
    """Write `size` numbers in low .. low + values - 1: planted runs, the rest uniform."""
    runs = _run_lengths(state, size)
    k = 0
    for part in runs:
        if part > 0:
            _choose(state, chosen, values, part)
            for i in range(values):  # branchless: the entry after the last one is scratch
                planted[k] = low + i
                k += chosen[i]
    _choose(state, chosen, size, k)
    k = 0
    for i in range(size):
        if chosen[i]:
            numbers[i] = planted[k]
            k += 1
        else:
            numbers[i] = low + below(state, values)


@kernel
def _draw(seed, stream, first, low, high, number_ids, length_ids, longest):
    """Fill ids of numbers low .. high - 1 and of lengths, (N, n), and the longest length (N, 1)."""
    count, size = number_ids.shape
    values = high - low
    state = np.empty(1, np.uint64)
    chosen = np.empty(max(values, size), np.bool_)
    planted = np.empty(size + 1, np.int64)
    numbers = np.empty(size, np.int64)
    tails = np.empty(size, np.int64)
    for row in range(count):
        start(state, seed, stream, size, first + row)
        _draw_numbers(state, size, low, values, chosen, planted, numbers)
        best = 0
        for i in range(size):
            number = numbers[i]
            left = np.searchsorted(tails[:best], number)
            tails[left] = number
            best = max(best, left + 1)
            number_ids[row, i] = number + _SEP
            length_ids[row, i] = left + 1 + _SEP
        longest[row, 0] = best + _SEP
