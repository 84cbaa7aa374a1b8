"""ED_Local: edit distance whose chain restates, after each row, what the next row needs."""

import math
from typing import ClassVar

from tasks.ed import LONGER, MAX_LETTERS, EditDistance, neighbours, strings
from tasks.sequences import Example


class EditDistanceLocal(EditDistance):
    """`EditDistance` with the same prompts and answers and a longer, more local chain.

    After row i and its comma come the unused letters of the first string, the bar, the second
    string and the marker; after the last row, the marker and the answer. So a row depends on the
    preceding block only. The paper says only that ED was modified for higher locality; this
    definition is ours.

    Example (size 3)::

        prompt  r x | c r o <sep>
        chain   3 1 3 , x | c r o <sep> 4 3 4 , <sep>
        answer  4
    """

    name = "ed_local"
    kernel_chain: ClassVar[int] = 2

    def chain_len(self, rows: int, columns: int) -> int:
        restated = sum(rows - i + columns + 2 for i in range(1, rows))
        return rows * (columns + 1) + restated + 1

    @property
    def line_ends(self) -> list[str]:
        return [self.answer_marker]  # a row and what is restated after it are a line

    @property
    def longest_lines(self) -> tuple[int, int]:
        one, two = self.longest_pair
        return one + two + 2, 2 * two + one + 2 if one > 1 else two + 2

    def render(self, one: list[str], two: list[str], table: list[list[int]]) -> list[str]:
        chain: list[str] = []
        for i, row in enumerate(table, start=1):
            restated = [*one[i:], "|", *two] if i < len(table) else []
            chain += [*map(str, row), ",", *restated, "<sep>"]
        return chain

    def dependencies(self, example: Example) -> list[list[int]]:
        """An entry needs letters and neighbours in the block before, a letter its copy there."""
        one, two = map(len, strings(example.prompt))
        needed: list[list[int]] = []
        block = row_above = 0  # where the letters to use begin, and the row above
        for i in range(one):
            bar = block + one - i
            row = bar + two + 2
            for j in range(two):
                needed.append([block, bar + 1 + j, *neighbours(row, row_above, i, j)])
            needed.append([])
            if i + 1 < one:
                needed += [[block + r] for r in range(1, one - i)] + [[]]
                needed += [[bar + 1 + j] for j in range(two)] + [[]]
            row_above, block = row, row + two + 1
        return [*needed, [], [row_above + two - 1]]

    def state_bits(self) -> float | tuple[float, float]:
        """Lower bound: all letters but a_1, of ten at most; upper: all pairs. Each row frees a
        letter (Proposition 5.5)."""
        if self.format == "direct" or self.size == 1:
            return super().state_bits()
        letters = min(MAX_LETTERS, self.alphabet_size)
        low = (self.size + self.size + LONGER - 1) * math.log2(letters)
        return low, math.log2(sum(self.alphabet_size**n for n in self.both_lengths))
