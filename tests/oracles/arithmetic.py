"""Arithmetic modulo 11; Python's parser decides precedence and associativity."""

import ast
import itertools
import random
from fractions import Fraction

NUMBERS = [str(number) for number in range(11)]


class Invalid(Exception):
    """The expression is malformed or divides by zero."""


def operate(left: int, operator: str, right: int) -> int:
    """Compute in the field with 11 elements; quotients are found by trying all elements."""
    if operator == "/" and right == 0:
        raise Invalid("division by zero")
    if operator == "/":
        return next(quotient for quotient in range(11) if quotient * right % 11 == left)
    return {"+": left + right, "-": left - right, "*": left * right}[operator] % 11


SYMBOLS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}


def parse(expression: str) -> ast.expr:
    """Python's parse tree of an expression of numbers 0..10, + - * / and brackets."""
    for token in expression.split():
        if token not in [*NUMBERS, *"+-*/()"]:
            raise Invalid(f"unknown token {token}")
    try:
        tree = ast.parse(expression, mode="eval").body
    except SyntaxError:
        raise Invalid(f"not an expression: {expression}") from None
    for node in ast.walk(tree):
        if not isinstance(node, (ast.BinOp, ast.Constant, *SYMBOLS)):
            raise Invalid(f"not an expression: {expression}")
    if any(f"( {number} )" in expression for number in NUMBERS):
        raise Invalid(f"brackets around a lone number: {expression}")
    return tree


def value(node: ast.AST) -> int:
    """Value of a parse tree; raises Invalid on division by zero."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    assert isinstance(node, ast.BinOp)
    return operate(value(node.left), SYMBOLS[type(node.op)], value(node.right))


def unbracket(expression: str, number: int) -> str:
    while f"( {number} )" in expression:
        expression = expression.replace(f"( {number} )", str(number))
    return expression


def same_formula(first: list[str], second: list[str]) -> bool:
    """Whether two token lists that differ only in brackets are equal for all numbers.

    Numbers are replaced by random fractions, so equal values mean equal formulas.
    """

    def evaluate(tokens: list[str]) -> Fraction:
        rng = random.Random(0)
        fractions = (f"F({rng.randrange(1, 10**6)},{rng.randrange(1, 10**6)})" for _ in tokens)
        formula = [next(fractions) if token in NUMBERS else token for token in tokens]
        return eval(" ".join(formula), {"F": Fraction})

    return evaluate(first) == evaluate(second)


def reductions(expression: str) -> list[str]:
    """All results of evaluating one `number operator number`.

    The pair need not come first by precedence (8 + 6 in a + 8 + 6 is allowed), but bracketing it
    must not change the formula (8 + 6 in a - 8 + 6 is not allowed).
    """
    tokens = expression.split()
    results = []
    for i in range(1, len(tokens) - 1):
        left, operator, right = pair = tokens[i - 1 : i + 2]
        if left not in NUMBERS or operator not in "+-*/" or right not in NUMBERS:
            continue
        before, after = tokens[: i - 1], tokens[i + 2 :]
        bracketed = [*before, "(", *pair, ")", *after]
        if (operator, right) != ("/", "0") and same_formula(tokens, bracketed):
            number = operate(int(left), operator, int(right))
            results.append(unbracket(" ".join([*before, str(number), *after]), number))
    return results


def leftmost_reduction(expression: str) -> str:
    """Evaluate the leftmost operation whose operands are both numbers."""
    operations = [node for node in ast.walk(parse(expression)) if isinstance(node, ast.BinOp)]
    two_numbers = (ast.Constant, ast.Constant)
    ready = [node for node in operations if (type(node.left), type(node.right)) == two_numbers]
    if not ready:
        raise Invalid(f"nothing to compute in {expression}")
    node = min(ready, key=lambda node: node.col_offset)
    reduced = expression[: node.col_offset] + str(value(node)) + expression[node.end_col_offset :]
    return unbracket(reduced, value(node))


def judge(line: str, size: int, order: str = "any", format: str = "cot") -> str | None:
    """`expression = expression = ... = number`; direct: `expression = number`."""
    expressions = [part.strip() for part in " ".join(line.split()).split("=")]
    if len(expressions) < 2 or (format == "direct" and len(expressions) != 2):
        return f"{len(expressions)} parts"
    operators = sum(token in "+-*/" for token in expressions[0].split())
    if not 1 <= operators <= size:
        return f"{operators} operators"
    if expressions[-1] not in NUMBERS:
        return f"the answer {expressions[-1]} is not a number"
    try:
        values = [value(parse(expression)) for expression in expressions]
        if len(set(values)) != 1:
            return f"the values are {values}"
        if format == "direct":
            return None
        for before, after in itertools.pairwise(expressions):
            if order == "leftmost" and after != leftmost_reduction(before):
                return f"{before} = {after} where {leftmost_reduction(before)} is expected"
            if after not in reductions(before):
                return f"{before} = {after} is not a single reduction"
    except Invalid as invalid:
        return str(invalid)
    return None


def needless_brackets(expression: str) -> bool:
    """Whether a pair of brackets can be removed without changing the formula."""
    tokens = expression.split()
    opened: list[int] = []
    for i, token in enumerate(tokens):
        if token == "(":
            opened.append(i)
        elif token == ")":
            j = opened.pop()
            without = tokens[:j] + tokens[j + 1 : i] + tokens[i + 1 :]
            if same_formula(tokens, without):
                return True
    return False
