"""Match3: do two of the numbers and the query sum to 0 modulo p? Tries all pairs of positions."""

import re
from itertools import product


def has_match(numbers: list[int], query: int, modulus: int) -> bool:
    """Whether numbers at two different positions and `query` sum to a multiple of p."""
    places = range(len(numbers))
    return any(
        i != j and (numbers[i] + numbers[j] + query) % modulus == 0
        for i, j in product(places, places)
    )


def judge(line: str, size: int, modulus: int) -> str | None:
    """`3 to n numbers <sep> number yes|no`."""
    words = line.split()
    count = len(words) - 3
    if words.count("<sep>") != 1 or not min(3, size) <= count <= size or words[count] != "<sep>":
        return "not 3 to n numbers, <sep>, a number and an answer"
    numbers = [*words[:count], words[count + 1]]
    for word in numbers:
        if not re.fullmatch("0|[1-9][0-9]*", word) or int(word) >= modulus:
            return f"{word} is no number modulo {modulus}"
    *values, query = map(int, numbers)
    expected = "yes" if has_match(values, query, modulus) else "no"
    return None if words[-1] == expected else f"the answer is {words[-1]} instead of {expected}"
