"""Longest strictly increasing subsequences, by definition."""

import re


def lengths(numbers: list[int]) -> list[int]:
    """For each position, one more than the best of the earlier positions with smaller numbers."""
    best: list[int] = []
    for i, number in enumerate(numbers):
        best.append(1 + max((best[j] for j in range(i) if numbers[j] < number), default=0))
    return best


def judge(line: str, size: int, format: str = "cot", capacity: int | None = None) -> str | None:
    """`n numbers <sep> n lengths <sep> maximum`, or `n numbers <sep> maximum` when direct.

    The numbers lie above `capacity`, the largest length that is a token; by default n.
    """
    largest = size if capacity is None else capacity
    parts = [part.split() for part in " ".join(line.split()).split("<sep>")]
    if len(parts) != (3 if format == "cot" else 2):
        return f"{len(parts) - 1} <sep>"
    if not all(re.fullmatch("0|[1-9][0-9]*", token) for part in parts for token in part):
        return "not numbers"
    prompt, *chain, answer = [[int(token) for token in part] for part in parts]
    if len(prompt) != size:
        return f"{len(prompt)} numbers instead of {size}"
    if not all(largest < number < max(250, 2 * largest + 1) for number in prompt):
        return "numbers outside their range"
    if chain and chain[0] != lengths(prompt):
        return f"the lengths are {chain[0]} instead of {lengths(prompt)}"
    if answer != [max(lengths(prompt))]:
        return f"the answer is {answer} instead of {max(lengths(prompt))}"
    return None
