"""ED: the weighted edit distance of two strings, with its dynamic-programming table as chain."""

from __future__ import annotations

import random
import string

import numpy as np

from tasks.kernel_cache import kernel
from tasks.random_numbers import below, start
from tasks.task import EOS_ID, Example, SequenceSet, Task

INSERT, DELETE, REPLACE = 2, 2, 3
BORDER = 1  # per letter against the empty string, in the unwritten zeroth row and column
SHORTER, LONGER = 3, 2  # the second string has between n - SHORTER and n + LONGER letters
MIN_LETTERS, MAX_LETTERS = 3, 10


class EditDistance(Task):
    """Two strings of about ``size`` letters; insertion and deletion cost 2, replacement 3.

    In the sequences of CoT_benchmark (Feng et al. 2023) the table's zeroth row and column count
    1, not 2, a letter (its answers are therefore not quite edit distances); we write what it
    writes.

    As there, the first string has ``size`` letters; the second is independent of it (probability
    0.4) or an edited copy; the shorter is written first.  The chain is the table without its
    zeroth row and column, each row ended by a comma; the answer is its last entry.  With a
    ``capacity`` the numbers that are tokens go as far as strings of that size need.

    Example (size 3)::

        prompt  r x | c r o <sep>
        chain   3 1 3 , 4 3 4 , <sep>
        answer  4
    """

    name = "ed"
    paper_sizes = (6, 12, 16, 20)
    answer_marker = "<sep>"

    def __init__(
        self,
        size: int,
        format: str = "cot",
        alphabet_size: int = 26,
        capacity: int | None = None,
    ):
        super().__init__(size, format)
        self.capacity = self.checked_capacity(capacity)
        self.alphabet_size = self.whole_number("alphabet_size", alphabet_size, MIN_LETTERS, 26)

    @property
    def longest_pair(self) -> tuple[int, int]:
        """The lengths of the two strings when both are as long as they can be."""
        return self.size, self.size + LONGER

    @property
    def largest_distance(self) -> int:
        """The largest entry, without a letter in common: down from the end of the zeroth row."""
        shorter, longer = self.longest_pair
        return BORDER * longer + DELETE * shorter

    @property
    def letters(self) -> list[str]:
        """The letters that strings are made of."""
        return list(string.ascii_lowercase[: self.alphabet_size])

    @property
    def own_tokens(self) -> list[str]:
        """Marker, separators, letters, and the numbers up to the largest distance."""
        return ["<sep>", "|", ",", *self.letters, *map(str, range(self.largest_distance + 1))]

    @property
    def max_prompt_len(self) -> int:
        """Both strings, the bar and the marker."""
        return sum(self.longest_pair) + 2

    @property
    def max_len(self) -> int:
        """n² + 5n + 6 with a chain."""
        chain = self.chain_len(*self.longest_pair) if self.format == "cot" else 0
        return self.max_prompt_len + chain + 1

    def chain_len(self, rows: int, columns: int) -> int:
        """Tokens of the chain of strings with ``rows`` and ``columns`` letters."""
        return rows * (columns + 1) + 1

    # Sampling

    def sample_prompt(self, rng: random.Random, size: int) -> list[str]:
        """Draw two different strings of admissible lengths, the shorter first.

        Pairs that are not admissible are drawn again with the same number of edits
        (CoT_benchmark), in everything else anew.
        """
        edits = rng.randint(1, size)
        while True:
            first, second = self.draw_pair(rng, size, edits)
            if first != second and max(1, size - SHORTER) <= len(second) <= size + LONGER:
                shorter, longer = sorted([first, second], key=len)
                return [*shorter, "|", *longer, "<sep>"]

    def draw_pair(self, rng: random.Random, size: int, edits: int) -> tuple[list[str], list[str]]:
        """Draw usable letters and two strings; the second may equal the first or be too long."""
        count = rng.randint(MIN_LETTERS, min(MAX_LETTERS, self.alphabet_size))
        letters = rng.sample(self.letters, count)
        first = [rng.choice(letters) for _ in range(size)]
        if rng.random() < 0.4:
            length = rng.randint(size - SHORTER, size + LONGER)
            return first, [rng.choice(letters) for _ in range(length)]
        return first, edit(rng, first, letters, edits)

    # Solving

    def solve(self, prompt: list[str]) -> tuple[list[str], list[str]]:
        """Fill the table row by row and render it."""
        one, two = strings(prompt)
        table = distances(one, two)
        return self.render(one, two, table), [str(table[-1][-1])]

    def render(self, one: list[str], two: list[str], table: list[list[int]]) -> list[str]:
        """Write the chain of a table of len(one) rows and len(two) columns."""
        return [token for row in table for token in [*map(str, row), ","]] + ["<sep>"]

    # Checking

    def check_prompt(self, prompt: list[str]) -> str | None:
        """Two strings of letters, the shorter first, one of them of ``size`` letters."""
        if prompt.count("|") != 1:
            return f"the prompt has {prompt.count('|')} '|', not one"
        for position, token in enumerate(prompt[:-1]):
            if token != "|" and token not in self.letters:
                return f"token {position + 1} is {token!r} where a letter should be"
        if len(set(map(tuple, strings(prompt)))) == 1:
            return "the two strings are equal"
        one, two = map(len, strings(prompt))
        least, most = max(1, self.size - SHORTER), self.size + LONGER
        if one > two:
            return f"the longer string ({one} letters) stands before the shorter ({two})"
        if self.size not in (one, two) or one < least or two > most:
            return (
                f"the strings have {one} and {two} letters: one must have {self.size}, "
                f"the other {least} to {most}"
            )
        return None

    # Locality

    def dependencies(self, example: Example) -> list[list[int]]:
        """An entry needs its two letters and its three neighbours; the answer the last entry."""
        one, two = map(len, strings(example.prompt))
        start_two, rows = one + 1, len(example.prompt)
        if self.format == "direct":
            return [[*range(one), *range(start_two, start_two + two)]]
        needed: list[list[int]] = []
        for i in range(one):
            row = rows + i * (two + 1)
            for j in range(two):
                needed.append([i, start_two + j, *neighbours(row, row - two - 1, i, j)])
            needed.append([])
        return [*needed, [], [rows + one * (two + 1) - 2]]

    def chain_steps(self, example: Example) -> list[int]:
        """The row of the table; the marker and the answer come after the last row."""
        steps, step = [], 0
        for token in example.chain + example.answer:
            steps.append(step)
            step += token == ","
        return steps

    def cell_positions(self, example: Example) -> np.ndarray:
        """Return where each entry of the table stands, (rows, columns) positions from 0.

        Without a chain the answer stands for all of them.
        """
        one, two = map(len, strings(example.prompt))
        if self.format == "direct":
            return np.full((one, two), len(example.prompt))
        starts = np.array(self.row_starts(example))
        return starts[:, None] + np.arange(two)

    def row_starts(self, example: Example) -> list[int]:
        """Return where each row of the table begins."""
        one, two = map(len, strings(example.prompt))
        return [len(example.prompt) + i * (two + 1) for i in range(one)]

    def letter_positions(self, example: Example) -> tuple[list[list[int]], list[list[int]]]:
        """For each letter of both strings, every position at which it is written."""
        one, two = map(len, strings(example.prompt))
        return [[i] for i in range(one)], [[one + 1 + j] for j in range(two)]

    # Drawing by the million

    def draw(
        self, seed: int, stream: int, first: int, count: int, size: int | None = None
    ) -> SequenceSet:
        """Draw with the compiled kernel; see `Task.draw`."""
        out = SequenceSet.empty(count, self.max_len + 1, self.vocabulary.dtype)
        self.fill(seed, stream, first, self.size if size is None else size, out)
        return out

    def fill(self, seed: int, stream: int, first: int, size: int, out: SequenceSet) -> None:
        """Run the kernel over all rows of ``out``."""
        _draw(
            seed, stream, first, size, self.alphabet_size, self.format == "cot",
            out.tokens, out.lengths, out.prompt_lengths,
        )  # fmt: skip


def edit(rng: random.Random, word: list[str], letters: list[str], edits: int) -> list[str]:
    """Return a copy of ``word`` after random edits; never fewer than two letters are left."""
    word = list(word)
    for _ in range(edits):
        kind = rng.randint(0, 2)
        if kind == 0 and len(word) > 2:
            del word[rng.randrange(len(word))]
        elif kind == 1:
            word[rng.randrange(len(word))] = rng.choice(letters)
        else:
            word.insert(rng.randint(0, len(word)), rng.choice(letters))
    return word


def strings(prompt: list[str]) -> tuple[list[str], list[str]]:
    """Return the two strings of a prompt."""
    bar = prompt.index("|")
    return prompt[:bar], prompt[bar + 1 : -1]


def distances(one: list[str], two: list[str]) -> list[list[int]]:
    """Return the table over all prefixes that have at least one letter, ``BORDER`` around it."""
    table = [[BORDER * j for j in range(len(two) + 1)]]
    for i, a in enumerate(one, start=1):
        row = [BORDER * i]
        for j, b in enumerate(two, start=1):
            replaced = table[i - 1][j - 1] + (0 if a == b else REPLACE)
            row.append(min(replaced, table[i - 1][j] + DELETE, row[j - 1] + INSERT))
        table.append(row)
    return [row[1:] for row in table[1:]]


def neighbours(row: int, above: int, i: int, j: int) -> list[int]:
    """Return the positions of the entries left, above and above left, as far as written."""
    left = [row + j - 1] if j else []
    up = [above + j] if i else []
    return left + up + ([above + j - 1] if i and j else [])


# Token ids as `EditDistance.own_tokens` orders them, after PAD and EOS.
SEP_ID, BAR_ID, COMMA_ID, LETTER_ID = range(2, 6)


@kernel
def _draw_second(state, size, edits, count, letters, first, second):
    """Draw the second string into ``second`` and return its length."""
    if below(state, 5) < 2:
        n = max(size - SHORTER + below(state, SHORTER + LONGER + 1), 0)
        for i in range(n):
            second[i] = letters[below(state, count)]
        return n
    n = size
    for i in range(n):
        second[i] = first[i]
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
    """Draw both strings as letter ids; returns the length of the second one.

    ``letters`` is scratch of alphabet_size entries, first and second of 2 size + 3.  See
    `EditDistance.sample_prompt`.
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
        n = _draw_second(state, size, edits, count, letters, first, second)
        if n < max(1, size - SHORTER) or n > size + LONGER:
            continue
        differ = n != size
        for i in range(min(n, size)):
            differ |= first[i] != second[i]
        if differ:
            return n


@kernel
def write_prompt(out, one, rows, two, columns):
    """Write both strings with their separators; returns the length of the prompt."""
    for i in range(rows):
        out[i] = one[i]
    out[rows] = BAR_ID
    for j in range(columns):
        out[rows + 1 + j] = two[j]
    out[rows + 1 + columns] = SEP_ID
    return rows + columns + 2


@kernel
def next_row(table, i, letter, two, columns):
    """Replace ``table``, row i of columns + 1 distances, by row i + 1."""
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
                for j in range(columns):
                    out[at + j] = number + table[j + 1]
                out[at + columns] = COMMA_ID
                at += columns + 1
        if cot:
            out[at] = SEP_ID
            at += 1
        out[at] = number + table[columns]
        out[at + 1] = EOS_ID
        lengths[row] = at + 2
