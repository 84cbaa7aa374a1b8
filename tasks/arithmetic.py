"""Arithmetic: evaluate an expression over a prime field, one reduction at a time."""

from __future__ import annotations

import itertools
import random
from typing import Any, ClassVar

import numpy as np

from errors import UserError
from tasks.kernel_cache import kernel
from tasks.random_numbers import below, start
from tasks.task import EOS_ID, Example, SequenceSet, Task

OPERATORS = "+-*/"
ORDERS = ("leftmost", "growth")


class Arithmetic(Task):
    """Expressions with ``size`` operators over the field of ``modulus`` elements.

    The expression is grown backwards from its value: a random number is replaced by an equal
    two-operand expression, with brackets only where they are needed, as in CoT_benchmark (Feng et
    al. 2023).  The chain is the expression after each reduction.  ``order="leftmost"`` reduces
    the leftmost evaluable pair first (Yang et al. 2024); ``order="growth"`` undoes the growth, a
    random order (CoT_benchmark).  No token depends on the size, so a ``capacity`` only makes
    room for longer sequences.

    Example (size 4, modulus 11, leftmost)::

        prompt  3 / 4 / ( 10 - 1 * 2 ) =
        chain   9 / ( 10 - 1 * 2 ) = 9 / ( 10 - 2 ) = 9 / 8 =
        answer  8
    """

    name = "arithmetic"
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
        super().__init__(size, format)
        self.capacity = self.checked_capacity(capacity)
        self.order = self.one_of("order", order, ORDERS)
        self.modulus = self.whole_number(
            "modulus", modulus, 2, 997, "each element of the field is a token"
        )
        if any(self.modulus % d == 0 for d in range(2, self.modulus)):
            raise UserError(f"task arithmetic: modulus={modulus} must be a prime number")

    @property
    def own_tokens(self) -> list[str]:
        """The marker, the operators, brackets, and the numbers of the field."""
        return ["=", *OPERATORS, "(", ")", *map(str, range(self.modulus))]

    @property
    def max_prompt_len(self) -> int:
        """k operators, k + 1 numbers, at most k - 1 pairs of brackets, and the marker."""
        return 4 * self.size

    @property
    def max_len(self) -> int:
        """The sum of 4k over the expressions of k = size .. 1 operators, and the answer."""
        chain = sum(4 * k for k in range(1, self.size)) if self.format == "cot" else 0
        return self.max_prompt_len + chain + 1

    def training_mixture(self) -> dict[int, float]:
        """Expressions of 1 .. size operators in proportion to their count (CoT_benchmark)."""
        total = self.size * (self.size + 1) / 2
        return {k: k / total for k in range(1, self.size + 1)}

    # Sampling

    def sample_prompt(self, rng: random.Random, size: int) -> list[str]:
        """Draw an expression of ``size`` operators, followed by the marker."""
        return [*self.grow(rng, size)[-1], "="]

    def sample(self, rng: random.Random, size: int | None = None) -> Example:
        """Draw one sequence; with order=growth its chain is the growth history reversed."""
        if self.order == "leftmost" or self.format == "direct":
            return super().sample(rng, size)
        *history, expression = self.grow(rng, self.size if size is None else size)
        return render(expression, history[::-1])

    def grow(self, rng: random.Random, size: int) -> list[list[str]]:
        """Return the expressions with 0, 1, .., ``size`` operators of one growth."""
        expression = [str(rng.randrange(self.modulus))]
        history = [expression]
        for _ in range(size):
            at = rng.choice([i for i, token in enumerate(expression) if token.isdigit()])
            a, operator, b = self.split(rng, int(expression[at]))
            pair = [str(a), operator, str(b)]
            if needs_brackets(expression, at, operator):
                pair = ["(", *pair, ")"]
            expression = expression[:at] + pair + expression[at + 1 :]
            history.append(expression)
        return history

    def split(self, rng: random.Random, value: int) -> tuple[int, str, int]:
        """Draw a, operator and b with ``a operator b`` equal to ``value``."""
        p = self.modulus
        while True:
            a, operator = rng.randrange(p), rng.choice(OPERATORS)
            if operator == "+":
                return a, operator, (value - a) % p
            if operator == "-":
                return a, operator, (a - value) % p
            if operator == "*" and a == 0 and value == 0:
                return a, operator, rng.randrange(p)
            if operator == "*" and a != 0:
                return a, operator, value * pow(a, -1, p) % p
            if operator == "/" and a == 0 and value == 0:
                return a, operator, rng.randrange(1, p)
            if operator == "/" and a != 0 and value != 0:
                return a, operator, a * pow(value, -1, p) % p

    # Solving

    def solve(self, prompt: list[str]) -> tuple[list[str], list[str]]:
        """Reduce the leftmost evaluable pair until one number is left."""
        expression, history = prompt[:-1], []
        while len(expression) > 1:
            at = next((i for i in range(len(expression)) if is_leftmost_pair(expression, i)), None)
            if at is None:
                raise UserError(f"cannot evaluate {' '.join(expression)!r}")
            expression = self.reduce(expression, at)
            history.append(expression)
        if not history:
            raise UserError("the expression has no operator")
        example = render(prompt[:-1], history)
        return example.chain, example.answer

    def evaluate(self, a: int, operator: str, b: int) -> int:
        """Return ``a operator b`` in the field; `UserError` for a division by zero."""
        if operator == "/" and b == 0:
            raise UserError(f"{a} / 0 divides by zero")
        exact = {"+": a + b, "-": a - b, "*": a * b}
        return (a * pow(b, -1, self.modulus) if operator == "/" else exact[operator]) % self.modulus

    def reduce(self, expression: list[str], at: int) -> list[str]:
        """Replace the pair that starts at ``at`` by its value, with brackets that held only it."""
        a, operator, b = expression[at : at + 3]
        left, right = pair_span(expression, at)
        value = str(self.evaluate(int(a), operator, int(b)))
        return [*expression[:left], value, *expression[right:]]

    # Checking

    def check_prompt(self, prompt: list[str]) -> str | None:
        """Say what is malformed, or how the number of operators is wrong."""
        expression = prompt[:-1]
        operators = sum(token in OPERATORS for token in expression)
        wrong = malformed(expression)
        if wrong is None and not 1 <= operators <= self.size:
            return f"the prompt has {operators} operators, not 1 to {self.size}"
        return wrong and f"the prompt is malformed: {wrong}"

    def check_solution(self, example: Example) -> str | None:
        """order=leftmost: the one chain there is; order=growth: any chain of legal reductions."""
        try:
            if self.order == "leftmost" or self.format == "direct":
                return super().check_solution(example)
            return self.check_reductions(split_at_marker(example.tokens))
        except UserError as error:
            return str(error)

    def check_reductions(self, expressions: list[list[str]]) -> str | None:
        """Each expression must follow from the one before by one legal reduction."""
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
        """Return where the pair stands whose reduction turns ``before`` into ``after``."""
        for at in range(len(before) - 2):
            divides_by_zero = before[at + 1 : at + 3] == ["/", "0"]
            if not is_legal_pair(before, at) or divides_by_zero:
                continue
            if self.reduce(before, at) == after:
                return at
        return None

    # Locality

    def dependencies(self, example: Example) -> list[list[int]]:
        """A result needs its pair; any other token needs the token it is copied from."""
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

    def chain_steps(self, example: Example) -> list[int]:
        """The number of the expression; a marker belongs to the expression it ends."""
        steps, step = [], 0
        for token in example.chain + example.answer:
            steps.append(step)
            step += token == "="
        return steps

    # Drawing by the million

    def draw(
        self, seed: int, stream: int, first: int, count: int, size: int | None = None
    ) -> SequenceSet:
        """Draw with the compiled kernel; see `Task.draw`."""
        size = self.size if size is None else size
        out = SequenceSet.empty(count, self.max_len + 1, self.vocabulary.dtype)
        p = self.modulus
        inverse = np.array([0] + [pow(a, -1, p) for a in range(1, p)], dtype=np.int64)
        chain = 0 if self.format == "direct" else 1 + ORDERS.index(self.order)
        _draw(
            seed, stream, first, size, p, inverse, chain,
            out.tokens, out.lengths, out.prompt_lengths,
        )  # fmt: skip
        return out


def render(expression: list[str], history: list[list[str]]) -> Example:
    """Join an expression and those it reduces to; the last one is the answer."""
    chain = [token for step in history[:-1] for token in [*step, "="]]
    return Example([*expression, "="], chain, history[-1])


def split_at_marker(tokens: list[str]) -> list[list[str]]:
    """Return the expressions of a sequence."""
    expressions: list[list[str]] = [[]]
    for token in tokens:
        if token == "=":
            expressions.append([])
        else:
            expressions[-1].append(token)
    return expressions


def around(expression: list[str], left: int, right: int) -> tuple[str, str]:
    """Return the tokens before ``left`` and at ``right``; "" beyond either end."""
    return (
        expression[left - 1] if left > 0 else "",
        expression[right] if right < len(expression) else "",
    )


def needs_brackets(expression: list[str], at: int, operator: str) -> bool:
    """Whether ``operator`` in place of the number at ``at`` must be bracketed (CoT_benchmark)."""
    before, after = around(expression, at, at + 1)
    return before == "/" or (
        (before in ("*", "-") or after in ("*", "/")) and operator in ("+", "-")
    )


def is_pair(expression: list[str], at: int) -> bool:
    """Whether number, operator, number stand at ``at``."""
    three = expression[at : at + 3]
    return len(three) == 3 and three[0].isdigit() and three[1] in OPERATORS and three[2].isdigit()


def is_leftmost_pair(expression: list[str], at: int) -> bool:
    """Whether precedence and left associativity evaluate the pair at ``at`` on its two numbers."""
    if not is_pair(expression, at):
        return False
    before, after = around(expression, at, at + 3)
    if expression[at + 1] in "*/":
        return before not in ("*", "/")
    return before in ("", "(") and after not in ("*", "/")


def is_legal_pair(expression: list[str], at: int) -> bool:
    """Whether reducing the pair at ``at`` keeps the value in the field, whatever the numbers."""
    if not is_pair(expression, at):
        return False
    before, after = around(expression, at, at + 3)
    if expression[at + 1] in "*/":
        return before != "/"
    return before not in ("*", "/", "-") and after not in ("*", "/")


def pair_span(expression: list[str], at: int) -> tuple[int, int]:
    """Return the slice that a reduction of the pair at ``at`` replaces: brackets included."""
    left, right = at, at + 3
    while around(expression, left, right) == ("(", ")"):
        left, right = left - 1, right + 1
    return left, right


def malformed(expression: list[str]) -> str | None:
    """Say why ``expression`` is not numbers, operators and brackets in order, or None."""
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


# Token ids as `Arithmetic.own_tokens` orders them, after PAD and EOS. In the kernels an expression
# stands at expression[1 .. n], with the id 0 before and after it.
_EQUALS, _PLUS, _MINUS, _TIMES, _DIVIDE, _OPEN, _CLOSE, _ZERO = range(2, 10)

# A class for each id (0 where an expression begins or ends), all numbers being one.
_START, _NUMBER, _SUM, _PRODUCT, _LEFT, _RIGHT = range(6)
_CLASS = np.array(
    [_START, _START, _START, _SUM, _SUM, _PRODUCT, _PRODUCT, _LEFT, _RIGHT, _NUMBER], np.int64
)


def _leftmost_windows() -> np.ndarray:
    """For five classes in a row, three bits each, whether the middle three are to be reduced.

    This is `is_leftmost_pair` as a table, so that the search branches once a token.
    """
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
    """Draw a, operator (its id) and b; see `Arithmetic.split`."""
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
    """Grow ``size`` operators in ``expression``, noting in ``places`` where each pair stood.

    ``numbers`` is scratch for the places of the size + 1 numbers, in any order.  Returns the
    length of the expression.
    """
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
    """Return the leftmost evaluable pair that starts at ``at`` or later."""
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
    """Replace the pair at ``at`` by its value, in place; returns the new length and place."""
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
def _draw(seed, stream, first, size, p, inverse, chain, tokens, lengths, prompt_lengths):
    """Fill rows of ``tokens``; ``chain`` is 0 for none, 1 for leftmost, 2 for growth order."""
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
