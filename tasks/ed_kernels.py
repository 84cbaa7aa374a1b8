"""Compiled kernels for edit distance: strings and tables as token ids."""

from __future__ import annotations

import numpy as np

from tasks.kernels import kernel
from tasks.random_numbers import below, start
from tasks.sequences import EOS_ID

INSERT, DELETE, REPLACE = 2, 2, 3
BORDER = 1  # per letter against the empty string, in the unwritten zeroth row and column
SHORTER, LONGER = 3, 2  # the second string has between n - SHORTER and n + LONGER letters
MIN_LETTERS, MAX_LETTERS = 3, 10

# Token ids as `EditDistance.own_tokens` orders them, after PAD and EOS.
SEP_ID, BAR_ID, COMMA_ID, LETTER_ID = range(2, 6)


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
        differ = n != size
        for i in range(min(n, size)):
            differ |= first[i] != second[i]
        if differ:
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
    for i in range(used, rows):
        out[at + i - used] = one[i]
    at += rows - used
    out[at] = BAR_ID
    for j in range(columns):
        out[at + 1 + j] = two[j]
    out[at + 1 + columns] = SEP_ID
    return at + columns + 2


@kernel
def write_row(out, at, table, number, columns):
    """Write a row of the table and its comma; returns where they end."""
    for j in range(columns):
        out[at + j] = number + table[j + 1]
    out[at + columns] = COMMA_ID
    return at + columns + 1


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
                at = write_row(out, at, table, number, columns)
            if chain == 2 and i + 1 < rows:
                at = write_strings(out, at, one, i + 1, rows, two, columns)
        if chain != 0:
            out[at] = SEP_ID
            at += 1
        out[at] = number + table[columns]
        out[at + 1] = EOS_ID
        lengths[row] = at + 2
