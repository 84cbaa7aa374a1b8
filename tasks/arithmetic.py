"""Arithmetic: evaluate an expression over a prime field, one reduction at a time."""

from __future__ import annotations

import itertools
import math
from typing import Any, ClassVar

import numpy as np

from common import UserError
from tasks.arithmetic_kernels import draw_rows
from tasks.task import Example, SequenceSet, Task, in_proportion

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
    step_end = "="
    paper_sizes = (6, 10, 13, 16)
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
    def longest_lines(self) -> int:
        return 4 * self.size + max(1, 4 * (self.size - 1))

    def training_mixture(self) -> dict[int, float]:
        """Expressions of 1 .. size operators in proportion to their count (CoT_benchmark)."""
        return in_proportion(range(1, self.size + 1))

    # Solving

    def solve(self, prompt: list[str]) -> tuple[list[str], list[str]]:
        expression, history = prompt[:-1], []
        while len(expression) > 1:
            at = next(i for i in range(len(expression)) if is_leftmost_pair(expression, i))
            expression = self.reduce(expression, at)
            history.append(expression)
        example = render(prompt[:-1], history)
        return example.chain, example.answer

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

    # Checking

    def check_prompt(self, prompt: list[str]) -> str | None:
        expression = prompt[:-1]
        operators = sum(token in OPERATORS for token in expression)
        wrong = malformed(expression)
        if wrong is None and not 1 <= operators <= self.size:
            return f"the prompt has {operators} operators, not 1 to {self.size}"
        return wrong and f"the prompt is malformed: {wrong}"

    def check_solution(self, example: Example) -> str | None:
        """order="leftmost": the only chain; order="growth": any chain of legal reductions."""
        if self.order == "leftmost" or self.format == "direct":
            return super().check_solution(example)
        return self.check_reductions(split_at_marker(example.tokens))

    def check_reductions(self, expressions: list[list[str]]) -> str | None:
        for number in range(1, len(expressions)):
            before, after = expressions[number - 1], expressions[number]
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
            if not is_legal_pair(before, at) or divides_by_zero:
                continue
            if self.reduce(before, at) == after:
                return at
        return None

    # Locality

    def dependencies(self, example: Example) -> list[list[int]]:
        """A result needs its pair; any other token needs the token it copies."""
        if self.format == "direct":
            return [list(range(len(example.prompt) - 1))]
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

    # Drawing by the million

    def draw_batch(self, seed: int, stream: int, first: int, count: int, size: int) -> SequenceSet:
        out, p = self.empty(count), self.modulus
        inverse = np.array([0] + [pow(a, -1, p) for a in range(1, p)], dtype=np.int64)
        chain = 0 if self.format == "direct" else 1 + ORDERS.index(self.order)
        rows = out.tokens, out.lengths, out.prompt_lengths
        draw_rows(seed, stream, first, size, p, inverse, chain, *rows)
        return out

    def state_bits(self, size: int) -> float | tuple[float, float]:
        """Counts the expressions of n - 1 operators that can follow, each with one chain. The same
        holds after a block of `size` operators (Proposition 5.5). With order="growth", any legal
        chain will do: at least the value, at most as for "leftmost"."""
        values = math.log2(self.modulus)
        if self.format == "direct":
            return values
        expressions = math.log2(float(count_expressions(size - 1, self.modulus).sum()))
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


def render(expression: list[str], history: list[list[str]]) -> Example:
    chain = [token for step in history[:-1] for token in [*step, "="]]
    return Example([*expression, "="], chain, history[-1])


# Expressions as lists of tokens


def split_at_marker(tokens: list[str]) -> list[list[str]]:
    return [expression.split() for expression in " ".join(tokens).split("=")]


def around(expression: list[str], left: int, right: int) -> tuple[str, str]:
    """The tokens before `left` and at `right`; "" beyond either end."""
    return (
        expression[left - 1] if left > 0 else "",
        expression[right] if right < len(expression) else "",
    )


def is_pair(expression: list[str], at: int) -> bool:
    """Whether number, operator, number stand at `at`."""
    three = expression[at : at + 3]
    return len(three) == 3 and three[0].isdigit() and three[1] in OPERATORS and three[2].isdigit()


def is_leftmost_pair(expression: list[str], at: int) -> bool:
    """Whether precedence and left associativity evaluate the pair at `at` by itself."""
    if not is_pair(expression, at):
        return False
    before, after = around(expression, at, at + 3)
    if expression[at + 1] in "*/":
        return before not in ("*", "/")
    return before in ("", "(") and after not in ("*", "/")


def is_legal_pair(expression: list[str], at: int) -> bool:
    """Whether reducing the pair at `at` keeps the value, whatever the numbers."""
    if not is_pair(expression, at):
        return False
    before, after = around(expression, at, at + 3)
    if expression[at + 1] in "*/":
        return before != "/"
    return before not in ("*", "/", "-") and after not in ("*", "/")


def pair_span(expression: list[str], at: int) -> tuple[int, int]:
    """The slice that reducing the pair at `at` replaces, brackets included."""
    left, right = at, at + 3
    while around(expression, left, right) == ("(", ")"):
        left, right = left - 1, right + 1
    return left, right


def malformed(expression: list[str]) -> str | None:
    """Why `expression` is not well formed, or None."""
    opened: list[int] = []
    operand_next = True
    for i, token in enumerate(expression):
        if operand_next != (token.isdigit() or token == "("):
            wanted = "a number or '('" if operand_next else "an operator or ')'"
            return f"token {i + 1} is {token!r} where {wanted} should be"
        if token == "(":
            opened.append(i)
        elif token == ")":
            if not opened:
                return f"token {i + 1} closes a bracket that was never opened"
            left = opened.pop()
            if not any(inside in OPERATORS for inside in expression[left + 1 : i]):
                return f"the brackets at tokens {left + 1} and {i + 1} hold only one number"
        else:
            operand_next = token in OPERATORS
    if operand_next:
        return "it ends where a number should be"
    return f"the bracket at token {opened[-1] + 1} is never closed" if opened else None
