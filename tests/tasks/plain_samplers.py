"""Plain Python samplers that the compiled kernels are compared with."""

import random

from tasks.arithmetic import OPERATORS, Arithmetic, around
from tasks.ed import LONGER, MAX_LETTERS, MIN_LETTERS, SHORTER, EditDistance
from tasks.lis import LIS
from tasks.mqar import MQAR
from tasks.sequences import Example
from tasks.task import Task


def sample(task: Task, rng: random.Random) -> Example:
    """Draw one sequence; for arithmetic with order=growth, the chain is the growth in reverse."""
    if isinstance(task, Arithmetic) and task.order == "growth" and task.format == "cot":
        *history, expression = grow(task, rng)
        *steps, answer = history[::-1]
        chain = [token for step in steps for token in [*step, "="]]
        return Example([*expression, "="], chain, answer)
    return task.complete(sample_prompt(task, rng))


def sample_prompt(task: Task, rng: random.Random) -> list[str]:
    size = task.size
    if isinstance(task, Arithmetic):
        return [*grow(task, rng)[-1], "="]
    if isinstance(task, EditDistance):
        return two_strings(task, rng)
    if isinstance(task, LIS):
        return planted_runs(task, rng)
    if isinstance(task, MQAR):
        keys, values = rng.sample(task.keys, size), rng.sample(task.values, size)
        pairs = [number for pair in zip(keys, values, strict=True) for number in pair]
        return [*map(str, pairs), "|", *map(str, rng.sample(keys, task.num_queries)), "<sep>"]
    return [*rng.choices(task.own_tokens[1:], k=size), "<sep>"]  # copy


def grow(task: Arithmetic, rng: random.Random) -> list[list[str]]:
    """Grow an expression; return its stages with 0, 1, ..., n operators."""
    expression = [str(rng.randrange(task.modulus))]
    history = [expression]
    for _ in range(task.size):
        at = rng.choice([i for i, token in enumerate(expression) if token.isdigit()])
        a, operator, b = operands(rng, int(expression[at]), task.modulus)
        pair = [str(a), operator, str(b)]
        if needs_brackets(expression, at, operator):
            pair = ["(", *pair, ")"]
        expression = expression[:at] + pair + expression[at + 1 :]
        history.append(expression)
    return history


def operands(rng: random.Random, value: int, p: int) -> tuple[int, str, int]:
    while True:
        a, operator = rng.randrange(p), rng.choice(OPERATORS)
        if operator == "+":
            return a, operator, (value - a) % p
        if operator == "-":
            return a, operator, (a - value) % p
        if a == 0 and value == 0:  # any b, but no division by 0
            return a, operator, rng.randrange(operator == "/", p)
        if operator == "*" and a != 0:
            return a, operator, value * pow(a, -1, p) % p
        if operator == "/" and a != 0 and value != 0:
            return a, operator, a * pow(value, -1, p) % p


def needs_brackets(expression: list[str], at: int, operator: str) -> bool:
    """Whether an operation that replaces the number at `at` needs brackets (CoT_benchmark)."""
    before, after = around(expression, at, at + 1)
    return before == "/" or (
        (before in ("*", "-") or after in ("*", "/")) and operator in ("+", "-")
    )


def two_strings(task: EditDistance, rng: random.Random) -> list[str]:
    """Redraw inadmissible pairs with the same number of edits, as CoT_benchmark does (its copies
    have 10.03 edits on average at n = 20)."""
    size = task.size
    edits = rng.randint(1, size)
    while True:
        first, second = draw_pair(task, rng, edits)
        if first != second and max(1, size - SHORTER) <= len(second) <= size + LONGER:
            shorter, longer = sorted([first, second], key=len)
            return [*shorter, "|", *longer, "<sep>"]


def draw_pair(task: EditDistance, rng: random.Random, edits: int):
    """Two strings; the second may equal the first or be too long."""
    count = rng.randint(MIN_LETTERS, min(MAX_LETTERS, task.alphabet_size))
    letters = rng.sample(task.letters, count)
    first = [rng.choice(letters) for _ in range(task.size)]
    if rng.random() < 0.4:
        length = rng.randint(task.size - SHORTER, task.size + LONGER)
        return first, [rng.choice(letters) for _ in range(length)]
    return first, edit(rng, first, letters, edits)


def edit(rng: random.Random, word: list[str], letters: list[str], edits: int) -> list[str]:
    """A copy of `word` with random edits; deletions leave at least two letters."""
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


def planted_runs(task: LIS, rng: random.Random) -> list[str]:
    size = task.size
    values = range(task.largest_size + 1, task.number_range)
    planted: list[int] = []
    for part in run_lengths(rng, size):
        planted += sorted(rng.sample(values, part))
    numbers = [rng.choice(values) for _ in range(size)]
    for place, value in zip(sorted(rng.sample(range(size), len(planted))), planted, strict=True):
        numbers[place] = value
    return [*map(str, numbers), "<sep>"]


def run_lengths(rng: random.Random, size: int) -> list[int]:
    """Draw the lengths of one to three runs: `min(3, size)` to `size` numbers in total."""
    runs, total = rng.randint(1, 3), rng.randint(min(3, size), size)
    if runs == 1:
        return [total]
    if runs == 2:
        one = rng.randint(1, total // 2 + 1)
        return [one, total - one]
    one = rng.randint(1, total // 3 + 1)
    two = min(rng.randint(1, (total - one) // 2 + 1), total - one)
    return [one, two, total - one - two]
