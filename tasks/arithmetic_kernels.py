"""Compiled kernels for Arithmetic: growth and reduction of expressions as token ids."""

from __future__ import annotations

import numpy as np

from tasks.kernels import kernel
from tasks.random_numbers import below, start
from tasks.sequences import EOS_ID

# Token ids as `Arithmetic.own_tokens` orders them, after PAD and EOS. In the kernels an expression
# stands at expression[1 .. n], with the id 0 before and after it.
_EQUALS, _PLUS, _MINUS, _TIMES, _DIVIDE, _OPEN, _CLOSE, _ZERO = range(2, 10)

# A class for each id (0 where an expression begins or ends), all numbers being one.
_START, _NUMBER, _SUM, _PRODUCT, _LEFT, _RIGHT = range(6)
_CLASS = np.array(
    [_START, _START, _START, _SUM, _SUM, _PRODUCT, _PRODUCT, _LEFT, _RIGHT, _NUMBER], np.int64
)


def _leftmost_windows() -> np.ndarray:
    """For five token classes in a row, three bits each, whether to reduce the middle three:
    `arithmetic.is_leftmost_pair` as a table, so the search branches once per token."""
    windows = np.zeros(1 << 15, np.bool_)
    for before in (_START, _LEFT, _SUM, _PRODUCT):
        for after in (_START, _RIGHT, _SUM, _PRODUCT):
            for operator in (_SUM, _PRODUCT):
                product = operator == _PRODUCT and before != _PRODUCT
                sum_ = operator == _SUM and before in (_START, _LEFT) and after != _PRODUCT
                code = 0
                for token_class in (before, _NUMBER, operator, _NUMBER, after):
                    code = code << 3 | token_class
                windows[code] = product or sum_
    return windows


_WINDOWS = _leftmost_windows()


@kernel
def _split(state, value, p, inverse):
    """Draw a, operator id and b with `a operator b` equal to `value`, by rejection."""
    while True:
        draw = below(state, 4 * p)
        a, operator = draw >> 2, _PLUS + (draw & 3)
        if operator == _PLUS:
            return a, operator, value - a + (p if value < a else 0)
        if operator == _MINUS:
            return a, operator, a - value + (p if a < value else 0)
        if a == 0 and value == 0:
            free = below(state, p) if operator == _TIMES else 1 + below(state, p - 1)
            return a, operator, free
        if operator == _TIMES and a != 0:
            return a, operator, value * inverse[a] % p
        if operator == _DIVIDE and a != 0 and value != 0:
            return a, operator, a * inverse[value] % p


@kernel
def _grow(state, size, p, inverse, expression, numbers, places):
    """Grow `size` operators in `expression` and return its length; `places` gets the place of each
    pair, `numbers` is scratch for those of the size + 1 numbers."""
    expression[0] = 0
    expression[1] = _ZERO + below(state, p)
    expression[2] = 0
    numbers[0] = 1
    n = 1
    for k in range(size):
        chosen = below(state, k + 1)
        at = numbers[chosen]
        a, operator, b = _split(state, expression[at] - _ZERO, p, inverse)
        before, after = expression[at - 1], expression[at + 1]
        binds = before in (_TIMES, _MINUS) or after in (_TIMES, _DIVIDE)
        bracketed = before == _DIVIDE or (binds and operator <= _MINUS)
        shift = 4 if bracketed else 2
        for i in range(n + 1, at, -1):
            expression[i + shift] = expression[i]
        for i in range(k + 1):
            numbers[i] += shift if numbers[i] > at else 0
        n += shift
        if bracketed:
            expression[at] = _OPEN
            expression[at + 4] = _CLOSE
            at += 1
        expression[at] = _ZERO + a
        expression[at + 1] = operator
        expression[at + 2] = _ZERO + b
        numbers[chosen] = at
        numbers[k + 1] = at + 2
        places[k] = at
    return n


@kernel
def _find_leftmost(expression, at):
    """The leftmost evaluable pair that starts at `at` or later."""
    window = 0
    for i in range(at - 1, at + 3):
        window = window << 3 | _CLASS[min(expression[i], _ZERO)]
    while True:
        window = (window << 3 | _CLASS[min(expression[at + 3], _ZERO)]) & 0x7FFF
        if _WINDOWS[window]:
            return at
        at += 1


@kernel
def _reduce(expression, n, at, p, inverse):
    """Replace the pair at `at` by its value in place; returns new length and place."""
    a, operator, b = expression[at] - _ZERO, expression[at + 1], expression[at + 2] - _ZERO
    if operator == _PLUS:
        value = a + b - (p if a + b >= p else 0)
    elif operator == _MINUS:
        value = a - b + (p if a < b else 0)
    else:
        value = a * (b if operator == _TIMES else inverse[b]) % p
    shift = 2
    if expression[at - 1] == _OPEN and expression[at + 3] == _CLOSE:
        at -= 1
        shift = 4
    expression[at] = _ZERO + value
    n -= shift
    for i in range(at + 1, n + 2):
        expression[i] = expression[i + shift]
    return n, at


@kernel
def draw_rows(seed, stream, first, size, p, inverse, chain, tokens, lengths, prompt_lengths):
    """Fill rows of `tokens`; `chain` is 0 for none, 1 for leftmost, 2 for growth order."""
    state = np.empty(1, np.uint64)
    expression = np.zeros(4 * size + 16, tokens.dtype)
    numbers = np.empty(size + 1, np.int64)
    places = np.empty(size + 1, np.int64)
    for row in range(tokens.shape[0]):
        start(state, seed, stream, size, first + row)
        n = _grow(state, size, p, inverse, expression, numbers, places)
        out = tokens[row]
        for i in range(n):
            out[i] = expression[i + 1]
        out[n] = _EQUALS
        length = n + 1
        prompt_lengths[row] = length
        at = 1
        for k in range(size - 1, -1, -1):
            at = places[k] if chain == 2 else _find_leftmost(expression, max(at - 2, 1))
            n, at = _reduce(expression, n, at, p, inverse)
            if chain != 0 or k == 0:
                rest = out[length:]
                for i in range(n):
                    rest[i] = expression[i + 1]
                rest[n] = _EQUALS if k > 0 else EOS_ID
                length += n + 1
        lengths[row] = length
