"""Arithmetic expressions as lists of tokens: pairs that can be reduced, brackets, form."""

from __future__ import annotations

OPERATORS = "+-*/"


def split_at_marker(tokens: list[str]) -> list[list[str]]:
    """Return the expressions that a sequence joins by "="."""
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
