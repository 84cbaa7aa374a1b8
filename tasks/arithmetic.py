"""Arithmetic: evaluate an expression over a prime field, one reduction at a time."""

import itertools
import math
from typing import Any, ClassVar

import numpy as np

from common import UserError
from tasks.kernels import kernel
from tasks.random_numbers import below, start
from tasks.sequences import EOS_ID, Example, SequenceSet
from tasks.task import Task, in_proportion

OPERATORS = "+-*/"
ORDERS = ("leftmost", "growth")


class Arithmetic(Task):
    """Expressions with `size` operators over the field of `modulus` elements.

    An expression grows backwards from its value: a random number is replaced by a two-operand
    expression of that value, with brackets only where needed (CoT_benchmark, Feng et al. 2023). The
    chain is the expression after each reduction: of the leftmost evaluable pair (order="leftmost",
    Yang et al. 2024), or in reverse order of growth (order="growth", CoT_benchmark). No token
    depends on the size, so `capacity` only makes room for longer sequences.

    Example (size 4, modulus 11, leftmost)::

        prompt  3 / 4 / ( 10 - 1 * 2 ) =
        chain   9 / ( 10 - 1 * 2 ) = 9 / ( 10 - 2 ) = 9 / 8 =
        answer  8
    """

    name = "arithmetic"
    answer_marker = "="
    check_defaults: ClassVar[dict[str, Any]] = {"order": "growth"}

    def __init__(
        self,
        size: int,
        format: str = "cot",
        order: str = "leftmost",
        modulus: int = 11,
        capacity: int | None = None,
    ):
        super().__init__(size, format, capacity)
        self.order = self.one_of("order", order, ORDERS)
        self.modulus = self.whole_number("modulus", modulus, 2, 997)
        if any(self.modulus % d == 0 for d in range(2, self.modulus)):
            raise UserError(f"task arithmetic: modulus={modulus} must be a prime number")

    @property
    def own_tokens(self) -> list[str]:
        return ["=", *OPERATORS, "(", ")", *map(str, range(self.modulus))]

    @property
    def max_len(self) -> int:
        """The sum of 4k over expressions of k = size .. 1 operators, plus the answer: k + 1
        numbers, k operators, at most k - 1 pairs of brackets, and the marker."""
        chain = sum(4 * k for k in range(1, self.size)) if self.format == "cot" else 0
        return 4 * self.size + chain + 1

    @property
    def longest_lines(self) -> tuple[int, int]:
        return 4 * self.size, max(1, 4 * (self.size - 1))

    def training_mixture(self) -> dict[int, float]:
        """Expressions of 1 .. size operators in proportion to their count (CoT_benchmark)."""
        return in_proportion(range(1, self.size + 1))

    def solve(self, prompt: list[str]) -> tuple[list[str], list[str]]:
        expression, history = prompt[:-1], []
        while len(expression) != 1 or not expression[0].isdigit():
            pairs = (i for i in range(len(expression)) if is_reducible(expression, i))
            if (at := next(pairs, None)) is None:
                raise UserError(
                    f"the prompt is malformed: nothing to reduce in {' '.join(expression)!r}"
                )
            expression = self.reduce(expression, at)
            history.append(expression)
        return [token for step in history[:-1] for token in [*step, "="]], history[-1]

    def evaluate(self, a: int, operator: str, b: int) -> int:
        """`a operator b` in the field; UserError for a division by zero."""
        if operator == "/" and b == 0:
            raise UserError(f"{a} / 0 divides by zero")
        exact = {"+": a + b, "-": a - b, "*": a * b}
        return (a * pow(b, -1, self.modulus) if operator == "/" else exact[operator]) % self.modulus

    def reduce(self, expression: list[str], at: int) -> list[str]:
        """Replace the pair at `at`, and brackets that held only it, by its value."""
        a, operator, b = expression[at : at + 3]
        left, right = pair_span(expression, at)
        value = str(self.evaluate(int(a), operator, int(b)))
        return [*expression[:left], value, *expression[right:]]

    def check_prompt(self, prompt: list[str]) -> str | None:
        """Checks only the number of operators; a malformed expression fails in `solve`."""
        operators = sum(token in OPERATORS for token in prompt)
        if not 1 <= operators <= self.size:
            return f"the prompt has {operators} operators, not 1 to {self.size}"
        return None

    def check_solution(self, example: Example) -> str | None:
        """order="leftmost": the only chain; order="growth": any chain of legal reductions."""
        if self.order == "leftmost" or self.format == "direct":
            return super().check_solution(example)
        expressions = split_at_marker(example.tokens)
        for number, (before, after) in enumerate(itertools.pairwise(expressions), start=1):
            if self.find_reduction(before, after) is None:
                return (
                    f"chain step {number}: {' '.join(after)!r} is not one legal reduction of "
                    f"{' '.join(before)!r}"
                )
        last = expressions[-1]
        return None if len(last) == 1 else f"the answer {' '.join(last)!r} is not a single number"

    def find_reduction(self, before: list[str], after: list[str]) -> int | None:
        """The place of the pair whose reduction turns `before` into `after`."""
        for at in range(len(before) - 2):
            divides_by_zero = before[at + 1 : at + 3] == ["/", "0"]
            if not is_reducible(before, at, "growth") or divides_by_zero:
                continue
            if self.reduce(before, at) == after:
                return at
        return None

    def dependencies(self, example: Example) -> list[list[int]]:
        """A result needs its pair; any other token needs the token it copies."""
        needed: list[list[int]] = []
        offset = 0
        expressions = split_at_marker(example.tokens)
        for before, after in itertools.pairwise(expressions):
            at = self.find_reduction(before, after)
            if at is None:
                raise UserError(f"{' '.join(after)!r} does not follow from {' '.join(before)!r}")
            left, right = pair_span(before, at)
            needed += [[offset + i] for i in range(left)]
            needed += [list(range(offset + left, offset + right))]
            needed += [[offset + i] for i in range(right, len(before))]
            needed += [[]]
            offset += len(before) + 1
        return needed[:-1]

    def draw_batch(self, seed: int, stream: int, first: int, count: int, size: int) -> SequenceSet:
        out, p = self.empty(count), self.modulus
        inverse = np.array([0] + [pow(a, -1, p) for a in range(1, p)], dtype=np.int64)
        chain = 0 if self.format == "direct" else 1 + ORDERS.index(self.order)
        rows = out.tokens, out.lengths, out.prompt_lengths
        draw_rows(seed, stream, first, size, p, inverse, chain, *rows)
        return out

    def state_bits(self) -> float | tuple[float, float]:
        """Counts the expressions of n - 1 operators that can follow, each with one chain. The same
        holds after a block of n operators (Proposition 5.5). With order="growth", any legal
        chain will do: at least the value, at most as for "leftmost"."""
        values = math.log2(self.modulus)
        if self.format == "direct":
            return values
        expressions = math.log2(float(count_expressions(self.size - 1, self.modulus).sum()))
        return expressions if self.order == "leftmost" else (values, expressions)


def count_expressions(operators: int, p: int) -> np.ndarray:
    """The number of expressions with this many operators, by value, (p,). Counted by grammar: sums
    are chains of + and -, products of * and /; a sum is bracketed as a factor and after -, a
    product after /; nothing divides by zero."""
    a, b = np.indices((p, p))
    inverse = np.array([0] + [pow(x, -1, p) for x in range(1, p)])

    def joined(operator: str, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        weights, nonzero = np.outer(left, right), b > 0
        if operator == "/":
            return np.bincount((a * inverse[b] % p)[nonzero], weights[nonzero], p)
        values = {"+": a + b, "-": a - b, "*": a * b}[operator] % p
        return np.bincount(values.ravel(), weights.ravel(), p)

    numbers, sums, products = np.zeros((3, operators + 1, p))
    numbers[0] = 1
    for k in range(1, operators + 1):
        for left in range(k):
            right = k - 1 - left
            factor = numbers + sums
            terms, every = numbers + products, numbers + sums + products
            products[k] += joined("*", terms[left] + sums[left], factor[right])
            products[k] += joined("/", terms[left] + sums[left], every[right])
            sums[k] += joined("+", every[left], terms[right])
            sums[k] += joined("-", every[left], every[right])
    return (numbers + sums + products)[-1]


# Expressions as lists of tokens


def split_at_marker(tokens: list[str]) -> list[list[str]]:
    return [expression.split() for expression in " ".join(tokens).split("=")]


def around(expression: list[str], left: int, right: int) -> tuple[str, str]:
    """The tokens before `left` and at `right`; "" beyond either end."""
    padded = [*expression, ""]
    return padded[left - 1], padded[right]


def is_reducible(expression: list[str], at: int, order: str = "leftmost") -> bool:
    """Whether precedence and left associativity evaluate the pair at `at` by itself; with
    order="growth", whether reducing it keeps the value, whatever the numbers."""
    a, operator, b = [*expression[at : at + 3], "", "", ""][:3]
    if not (a.isdigit() and operator in OPERATORS and b.isdigit()):
        return False
    before, after = around(expression, at, at + 3)
    if operator in "*/":
        return before != "/" and (before != "*" or order == "growth")
    starts = before in ("", "(") or (before == "+" and order == "growth")
    return starts and after not in ("*", "/")


def pair_span(expression: list[str], at: int) -> tuple[int, int]:
    """The slice that reducing the pair at `at` replaces, brackets included."""
    left, right = at, at + 3
    while around(expression, left, right) == ("(", ")"):
        left, right = left - 1, right + 1
    return left, right


# Token ids as `Arithmetic.own_tokens` orders them, after PAD and EOS. In the kernels an expression
# stands at expression[1 .. n], with the id 0 before and after it.
_EQUALS, _PLUS, _MINUS, _TIMES, _DIVIDE, _OPEN, _CLOSE, _ZERO = range(2, 10)


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
    """The first `is_reducible` pair from `at` on."""
    while True:
        operator, before, after = expression[at + 1], expression[at - 1], expression[at + 3]
        if expression[at] >= _ZERO and _PLUS <= operator <= _DIVIDE and expression[at + 2] >= _ZERO:
            if operator >= _TIMES:
                reducible = before != _TIMES and before != _DIVIDE
            else:
                reducible = (before == 0 or before == _OPEN) and not _TIMES <= after <= _DIVIDE
            if reducible:
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
