"""Recursive edit distance with insert 2, delete 2, replace 3, match 0.

As in CoT_benchmark (Feng et al. 2023), whose generator wrote the sample files, row and column 0 are
0, 1, 2, 3, ... instead of the textbook's 0, 2, 4, 6, ...: leading insertions and deletions cost 1.
"""

from collections.abc import Callable
from functools import cache


def prefix_distances(first: str, second: str) -> Callable[[int, int], int]:
    """Minimum cost of turning the first i letters of `first` into the first j of `second`."""

    @cache
    def prefix(i: int, j: int) -> int:
        if i == 0 or j == 0:
            return i + j
        match_or_replace = 0 if first[i - 1] == second[j - 1] else 3
        either = min(prefix(i - 1, j), prefix(i, j - 1)) + 2
        return min(either, prefix(i - 1, j - 1) + match_or_replace)

    return prefix


def chain(first: str, second: str, local: bool) -> list[str]:
    """One row of distances per non-empty prefix of `first`."""
    tokens, prefix = [], prefix_distances(first, second)
    for i in range(1, len(first) + 1):
        tokens += [*(str(prefix(i, j)) for j in range(1, len(second) + 1)), ","]
        if local and i < len(first):
            tokens += [*first[i:], "|", *second, "<sep>"]
    return [*tokens, "<sep>"]


def judge(line: str, size: int, format: str = "cot", local: bool = False) -> str | None:
    """`s1 | s2 <sep> rows <sep> distance`; direct: no rows; local: letters repeated after rows."""
    tokens = line.split()
    if "<sep>" not in tokens or tokens[: tokens.index("<sep>")].count("|") != 1:
        return "no prompt of the form s1 | s2 <sep>"
    end, bar = tokens.index("<sep>"), tokens.index("|")
    first, second = tokens[:bar], tokens[bar + 1 : end]
    if not set(first + second) <= set("abcdefghijklmnopqrstuvwxyz"):
        return "not letters"
    if not 1 <= len(first) <= len(second):
        return "an empty string, or the longer string first"
    if size not in (len(first), len(second)):
        return f"neither string has {size} letters"
    if len(first) < size - 3 or len(second) > size + 2:
        return f"lengths {len(first)} and {len(second)} are too far from {size}"
    if first == second:
        return "equal strings"
    s1, s2 = "".join(first), "".join(second)
    distance = prefix_distances(s1, s2)(len(s1), len(s2))
    expected = [*(chain(s1, s2, local) if format == "cot" else []), str(distance)]
    if tokens[end + 1 :] != expected:
        return f"after the prompt {' '.join(expected)} is expected"
    return None


def judge_local(line: str, size: int, format: str = "cot") -> str | None:
    return judge(line, size, format, local=True)
