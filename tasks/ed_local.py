"""ED_Local: edit distance whose chain restates, after each row, all that the next row needs."""

from __future__ import annotations

import numpy as np

from tasks.ed import (
    BAR_ID,
    BORDER,
    COMMA_ID,
    LETTER_ID,
    LONGER,
    SEP_ID,
    EditDistance,
    draw_strings,
    neighbours,
    next_row,
    strings,
    write_prompt,
)
from tasks.kernel_cache import kernel
from tasks.random_numbers import start
from tasks.task import EOS_ID, Example, SequenceSet


class EditDistanceLocal(EditDistance):
    """`EditDistance` with the same prompts and answers and a longer, more local chain.

    After row i and its comma come the letters of the first string not used yet, the bar, the
    second string and the marker; the last row is followed by the marker and the answer.  So a
    row depends on the preceding block alone.  The paper says only that ED was modified to have
    a higher locality; this definition is ours.

    Example (size 3)::

        prompt  r x | c r o <sep>
        chain   3 1 3 , x | c r o <sep> 4 3 4 , <sep>
        answer  4
    """

    name = "ed_local"

    def chain_len(self, rows: int, columns: int) -> int:
        """Rows with their commas, then what is restated after each row, then the last marker."""
        restated = sum(rows - i + columns + 2 for i in range(1, rows))
        return rows * (columns + 1) + restated + 1

    def render(self, one: list[str], two: list[str], table: list[list[int]]) -> list[str]:
        """Write the chain of a table of len(one) rows and len(two) columns."""
        chain: list[str] = []
        for i, row in enumerate(table, start=1):
            restated = [*one[i:], "|", *two] if i < len(table) else []
            chain += [*map(str, row), ",", *restated, "<sep>"]
        return chain

    def dependencies(self, example: Example) -> list[list[int]]:
        """An entry needs letters and neighbours of the block before; a letter, its copy there."""
        if self.format == "direct":
            return super().dependencies(example)
        one, two = map(len, strings(example.prompt))
        needed: list[list[int]] = []
        row_above = 0
        for i, row in enumerate(self.row_starts(example)):
            block = row - (two + one - i + 2)  # where the letters to use begin
            bar = block + one - i
            for j in range(two):
                needed.append([block, bar + 1 + j, *neighbours(row, row_above, i, j)])
            needed.append([])
            if i + 1 < one:
                needed += [[block + r] for r in range(1, one - i)] + [[]]
                needed += [[bar + 1 + j] for j in range(two)] + [[]]
            row_above = row
        return [*needed, [], [row_above + two - 1]]

    def row_starts(self, example: Example) -> list[int]:
        """Return where each row of the table begins: after letters, bar, letters and marker."""
        one, two = map(len, strings(example.prompt))
        starts, end = [], 0
        for i in range(one):
            starts.append(end + one - i + two + 2)
            end = starts[-1] + two + 1
        return starts

    def letter_positions(self, example: Example) -> tuple[list[list[int]], list[list[int]]]:
        """For each letter of both strings, every position at which it is written."""
        first, second = super().letter_positions(example)
        if self.format == "direct":
            return first, second
        one, two = len(first), len(second)
        for i, row in enumerate(self.row_starts(example)[:-1], start=1):
            block = row + two + 1
            for r in range(i, one):
                first[r].append(block + r - i)
            for j in range(two):
                second[j].append(block + one - i + 1 + j)
        return first, second

    def chain_steps(self, example: Example) -> list[int]:
        """The block: a row, what is restated after it, and the marker; then the answer."""
        steps, step = [], 0
        for token in example.chain + example.answer:
            steps.append(step)
            step += token == "<sep>"
        return steps

    def fill(self, seed: int, stream: int, first: int, size: int, out: SequenceSet) -> None:
        """Run the kernel over all rows of ``out``."""
        _draw(
            seed, stream, first, size, self.alphabet_size, self.format == "cot",
            out.tokens, out.lengths, out.prompt_lengths,
        )  # fmt: skip


@kernel
def _draw(seed, stream, first_index, size, alphabet_size, cot, tokens, lengths, prompt_lengths):
    """Fill rows of ``tokens``."""
    state = np.empty(1, np.uint64)
    letters = np.empty(alphabet_size, np.int64)
    first = np.empty(2 * size + 3, np.int64)
    second = np.empty(2 * size + 3, np.int64)
    table = np.empty(size + LONGER + 1, np.int64)
    number = LETTER_ID + alphabet_size
    for row in range(tokens.shape[0]):
        start(state, seed, stream, size, first_index + row)
        n = draw_strings(state, size, alphabet_size, letters, first, second)
        one, rows, two, columns = first, size, second, n
        if n < size:
            one, rows, two, columns = second, n, first, size
        out = tokens[row]
        at = write_prompt(out, one, rows, two, columns)
        prompt_lengths[row] = at
        for j in range(columns + 1):
            table[j] = BORDER * j
        for i in range(rows):
            next_row(table, i, one[i], two, columns)
            if cot:
                at = _write_block(out, at, table, number, one, i + 1, rows, two, columns)
        out[at] = number + table[columns]
        out[at + 1] = EOS_ID
        lengths[row] = at + 2


@kernel
def _write_block(out, at, table, number, one, used, rows, two, columns):
    """Write a row, what the next row needs, and the marker; returns where the block ends."""
    for j in range(columns):
        out[at + j] = number + table[j + 1]
    at += columns
    out[at] = COMMA_ID
    at += 1
    if used < rows:
        for i in range(used, rows):
            out[at + i - used] = one[i]
        at += rows - used
        out[at] = BAR_ID
        for j in range(columns):
            out[at + 1 + j] = two[j]
        at += columns + 1
    out[at] = SEP_ID
    return at + 1
