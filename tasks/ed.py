"""ED: the weighted edit distance of two strings, with the dynamic-programming table as chain."""

import math
import string
from typing import ClassVar

import numpy as np

from tasks.kernels import kernel
from tasks.random_numbers import below, start
from tasks.sequences import EOS_ID, Example, SequenceSet
from tasks.task import Task, misplaced

INSERT, DELETE, REPLACE = 2, 2, 3
BORDER = 1  # per letter against the empty string, in the unwritten zeroth row and column
SHORTER, LONGER = 3, 2  # the second string has between n - SHORTER and n + LONGER letters
MIN_LETTERS, MAX_LETTERS = 3, 10

# Token ids as `EditDistance.own_tokens` orders them, after PAD and EOS.
SEP_ID, BAR_ID, COMMA_ID, LETTER_ID = range(2, 6)


class EditDistance(Task):
    """Two strings of about `size` letters; insertion and deletion cost 2, replacement 3.

    As in CoT_benchmark (Feng et al. 2023), the table's zeroth row and column count 1, not 2, per
    letter, so answers are not quite edit distances. The first string has `size` letters; the second
    is independent (probability 0.4) or an edited copy; the shorter is written first. The chain is
    the table without its zeroth row and column, each row ending in a comma; the answer is the last
    entry. With a `capacity`, number tokens go up to the largest distance at that size.

    Example (size 3)::

        prompt  r x | c r o <sep>
        chain   3 1 3 , 4 3 4 , <sep>
        answer  4
    """

    name = "ed"
    kernel_chain: ClassVar[int] = 1

    def __init__(
        self, size: int, format: str = "cot", alphabet_size: int = 26, capacity: int | None = None
    ):
        super().__init__(size, format, capacity)
        self.alphabet_size = self.whole_number("alphabet_size", alphabet_size, MIN_LETTERS, 26)
        self.letters = list(string.ascii_lowercase[: self.alphabet_size])
        self.longest_pair = shorter, longer = self.size, self.size + LONGER  # lengths
        # The largest table entry, for strings without a common letter.
        self.largest_distance = BORDER * longer + DELETE * shorter

    @property
    def own_tokens(self) -> list[str]:
        return ["<sep>", "|", ",", *self.letters, *map(str, range(self.largest_distance + 1))]

    @property
    def line_ends(self) -> list[str]:
        return [self.answer_marker, ","]  # a row of the table is a line

    @property
    def max_len(self) -> int:
        """n² + 5n + 6 with a chain, 2n + 5 without."""
        chain = self.chain_len(*self.longest_pair) if self.format == "cot" else 0
        return sum(self.longest_pair) + 2 + chain + 1

    @property
    def longest_lines(self) -> tuple[int, int]:
        one, two = self.longest_pair
        return one + two + 2, two + 1

    def chain_len(self, rows: int, columns: int) -> int:
        return rows * (columns + 1) + 1

    def solve(self, prompt: list[str]) -> tuple[list[str], list[str]]:
        one, two = strings(prompt)
        table = distances(one, two)
        return self.render(one, two, table), [str(table[-1][-1])]

    def render(self, one: list[str], two: list[str], table: list[list[int]]) -> list[str]:
        """The chain of a table with len(one) rows and len(two) columns."""
        return [token for row in table for token in [*map(str, row), ","]] + ["<sep>"]

    def check_prompt(self, prompt: list[str]) -> str | None:
        if prompt.count("|") != 1:
            return f"the prompt has {prompt.count('|')} '|', not one"
        if reason := misplaced(prompt[:-1], ["|", *self.letters], "a letter"):
            return reason
        one, two = strings(prompt)
        if one == two:
            return "the two strings are equal"
        shorter, longer = len(one), len(two)
        least, most = max(1, self.size - SHORTER), self.size + LONGER
        if shorter > longer:
            return f"the longer string ({shorter} letters) comes before the shorter ({longer})"
        if self.size not in (shorter, longer) or shorter < least or longer > most:
            return (
                f"the strings have {shorter} and {longer} letters: one must have {self.size}, "
                f"the other {least} to {most}"
            )
        return None

    def dependencies(self, example: Example) -> list[list[int]]:
        """An entry needs its two letters and three neighbours; the answer needs the last entry."""
        one, two = map(len, strings(example.prompt))
        start_two, rows = one + 1, len(example.prompt)
        needed: list[list[int]] = []
        for i in range(one):
            row = rows + i * (two + 1)
            for j in range(two):
                needed.append([i, start_two + j, *neighbours(row, row - two - 1, i, j)])
            needed.append([])
        return [*needed, [], [rows + one * (two + 1) - 2]]

    def draw_batch(self, seed: int, stream: int, first: int, count: int, size: int) -> SequenceSet:
        out = self.empty(count)
        chain = 0 if self.format == "direct" else self.kernel_chain
        rows = out.tokens, out.lengths, out.prompt_lengths
        draw_rows(seed, stream, first, size, self.alphabet_size, chain, *rows)
        return out

    def state_bits(self) -> float | tuple[float, float]:
        """Lower bound: row 1 shows which letters equal a_1, column 1 which equal b_1,
        independently: 2n + 1 bits for n and n + 2 letters. Upper bound: the table depends only on
        which letters are equal: restricted growth sequences of at most ten letters, counted for
        each pair of lengths."""
        if self.format == "direct":
            return 1.0, math.log2(self.largest_distance + 1)
        from scipy.special import stirling2  # takes 0.3 s

        letters = range(1, min(MAX_LETTERS, self.alphabet_size) + 1)
        counts = stirling2(np.array(self.both_lengths)[:, None], letters, exact=True)
        return 2.0 * self.size + 1, math.log2(counts.sum())

    @property
    def both_lengths(self) -> list[int]:
        """Letters of both strings together, for each length of the second."""
        n = self.size
        return [n + other for other in range(max(1, n - SHORTER), n + LONGER + 1)]


def strings(prompt: list[str]) -> tuple[list[str], list[str]]:
    bar = prompt.index("|")
    return prompt[:bar], prompt[bar + 1 : -1]


def distances(one: list[str], two: list[str]) -> list[list[int]]:
    """The rows of the table, without the border row and column."""
    table = [[BORDER * j for j in range(len(two) + 1)]]
    for i, a in enumerate(one, start=1):
        row = [BORDER * i]
        for j, b in enumerate(two, start=1):
            replaced = table[i - 1][j - 1] + (0 if a == b else REPLACE)
            row.append(min(replaced, table[i - 1][j] + DELETE, row[j - 1] + INSERT))
        table.append(row)
    return [row[1:] for row in table[1:]]


def neighbours(row: int, above: int, i: int, j: int) -> list[int]:
    """Positions of the entries left, above and above left, if written."""
    left = [row + j - 1] if j else []
    up = [above + j] if i else []
    return left + up + ([above + j - 1] if i and j else [])


@kernel
def draw_second(state, size, edits, count, letters, first, second):
    """Draw the second string into `second` and return its length: independent of the first
    (probability 0.4), or a copy after `edits` edits that leave at least two letters."""
    if below(state, 5) < 2:
        n = max(size - SHORTER + below(state, SHORTER + LONGER + 1), 0)
        for i in range(n):
            second[i] = letters[below(state, count)]
        return n
    n = size
    second[:n] = first[:n]
    for _ in range(edits):
        kind = below(state, 3)
        if kind == 0 and n > 2:
            n -= 1
            for i in range(below(state, n + 1), n):
                second[i] = second[i + 1]
        elif kind == 1:
            at = below(state, n)
            second[at] = letters[below(state, count)]
        else:
            at = below(state, n + 1)
            for i in range(n, at, -1):
                second[i] = second[i - 1]
            second[at] = letters[below(state, count)]
            n += 1
    return n


@kernel
def draw_strings(state, size, alphabet_size, letters, first, second):
    """Draw two different strings of letter ids; returns the length of the second.

    `letters` is scratch of alphabet_size entries; first and second have 2 size + 3. Inadmissible
    pairs are redrawn with the same number of edits (CoT_benchmark).
    """
    edits = 1 + below(state, size)
    while True:
        count = MIN_LETTERS + below(state, min(MAX_LETTERS, alphabet_size) - MIN_LETTERS + 1)
        for i in range(alphabet_size):
            letters[i] = LETTER_ID + i
        for i in range(count):  # a partial shuffle chooses the usable letters
            j = i + below(state, alphabet_size - i)
            letters[i], letters[j] = letters[j], letters[i]
        for i in range(size):
            first[i] = letters[below(state, count)]
        n = draw_second(state, size, edits, count, letters, first, second)
        if n < max(1, size - SHORTER) or n > size + LONGER:
            continue
        if n != size or (first[:n] != second[:n]).any():
            return n


@kernel
def next_row(table, i, letter, two, columns):
    """Replace row i of `table` (columns + 1 distances) by row i + 1."""
    diagonal = table[0]
    left = BORDER * (i + 1)
    table[0] = left
    for j in range(columns):
        up = table[j + 1]
        best = min(diagonal + (0 if two[j] == letter else REPLACE), up + DELETE)
        left = min(best, left + INSERT)
        diagonal = up
        table[j + 1] = left


@kernel
def write_strings(out, at, one, used, rows, two, columns):
    """Write the first string from letter `used` on, and the second; returns where they end."""
    out[at : at + rows - used] = one[used:rows]
    at += rows - used
    out[at] = BAR_ID
    out[at + 1 : at + 1 + columns] = two[:columns]
    out[at + 1 + columns] = SEP_ID
    return at + columns + 2


@kernel
def draw_rows(
    seed, stream, first_index, size, alphabet_size, chain, tokens, lengths, prompt_lengths
):
    """Fill rows of `tokens`; `chain` is 0 for none, 1 for the table, 2 for ED_Local's."""
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
        at = write_strings(out, 0, one, 0, rows, two, columns)
        prompt_lengths[row] = at
        for j in range(columns + 1):
            table[j] = BORDER * j
        for i in range(rows):
            next_row(table, i, one[i], two, columns)
            if chain != 0:
                for j in range(columns):
                    out[at + j] = number + table[j + 1]
                out[at + columns] = COMMA_ID
                at += columns + 1
            if chain == 2 and i + 1 < rows:
                at = write_strings(out, at, one, i + 1, rows, two, columns)
        if chain != 0:
            out[at] = SEP_ID
            at += 1
        out[at] = number + table[columns]
        out[at + 1] = EOS_ID
        lengths[row] = at + 2
