"""Oracles for copying, longest increasing subsequences and associative recall."""

import re


def judge_copy(line: str, size: int, format: str = "direct", alphabet_size: int = 26) -> str | None:
    """`letters <sep> the same letters`, 1 to n letters, in every format."""
    tokens = line.split()
    if tokens.count("<sep>") != 1:
        return f"{tokens.count('<sep>')} <sep>"
    marker = tokens.index("<sep>")
    first, second = tokens[:marker], tokens[marker + 1 :]
    letters = "abcdefghijklmnopqrstuvwxyz"[:alphabet_size]
    if not set(first + second) <= set(letters):
        return "not letters"
    if not 1 <= len(first) <= size:
        return f"{len(first)} letters"
    return None if first == second else "the strings differ"


def lis_lengths(numbers: list[int]) -> list[int]:
    """Length of the longest increasing subsequence that ends at each position: one more than the
    maximum over earlier positions with smaller numbers."""
    best: list[int] = []
    for i, number in enumerate(numbers):
        best.append(1 + max((best[j] for j in range(i) if numbers[j] < number), default=0))
    return best


def judge_lis(line: str, size: int, format="cot", capacity=None, number_range=None) -> str | None:
    """`n numbers <sep> n lengths <sep> maximum`; direct: `n numbers <sep> maximum`.

    The numbers are larger than `capacity`, the largest length token (default: n).
    """
    largest = size if capacity is None else capacity
    end = max(250, 2 * largest + 1) if number_range is None else number_range
    parts = [part.split() for part in " ".join(line.split()).split("<sep>")]
    if len(parts) != (3 if format == "cot" else 2):
        return f"{len(parts) - 1} <sep>"
    if not all(re.fullmatch("0|[1-9][0-9]*", token) for part in parts for token in part):
        return "not numbers"
    prompt, *chain, answer = [[int(token) for token in part] for part in parts]
    if len(prompt) != size:
        return f"{len(prompt)} numbers instead of {size}"
    if not all(largest < number < end for number in prompt):
        return "numbers outside their range"
    if chain and chain[0] != lis_lengths(prompt):
        return f"the lengths are {chain[0]} instead of {lis_lengths(prompt)}"
    if answer != [max(lis_lengths(prompt))]:
        return f"the answer is {answer} instead of {max(lis_lengths(prompt))}"
    return None


def judge_mqar(
    line: str, size: int, format="cot", queries=None, vocab_size=None, capacity=None
) -> str | None:
    """`n pairs | m keys <sep> m pairs <sep> value`; direct: `n pairs | m keys <sep> value`; tagged:
    `n pairs | m keys <sep> labels`, with a bar for each token up to the bar, then m values.

    Keys are distinct and in the lower half of the vocabulary, values distinct and in the upper.
    """
    largest = size if capacity is None else capacity
    vocab_size = max(128, 4 * largest) if vocab_size is None else vocab_size
    asked = size if queries is None else queries
    parts = [part.split() for part in " ".join(line.split()).split("<sep>")]
    if len(parts) != (3 if format == "cot" else 2):
        return f"{len(parts) - 1} <sep>"
    numbers = {token for part in parts for token in part} - {"|"}
    if not all(re.fullmatch("[1-9][0-9]*", n) and int(n) <= vocab_size for n in numbers):
        return "not in the vocabulary"
    prompt, *chain, answer = parts
    if len(prompt) != 2 * size + 1 + asked or prompt.count("|") != 1 or prompt[2 * size] != "|":
        return "the prompt is not pairs, a bar and queries"
    keys, values = [int(t) for t in prompt[0 : 2 * size : 2]], prompt[1 : 2 * size : 2]
    wanted = [int(t) for t in prompt[2 * size + 1 :]]
    if sorted(set(keys)) != sorted(keys) or max(keys) > vocab_size // 2:
        return "the keys are not different keys"
    if len(set(values)) != size or min(map(int, values)) <= vocab_size // 2:
        return "the values are not different values"
    if len(set(wanted)) != asked or not set(wanted) <= set(keys):
        return "the queries are not different keys of the pairs"
    value_of = dict(zip(keys, values, strict=True))
    expected = [token for query in wanted for token in (str(query), value_of[query])]
    if chain and chain[0] != expected:
        return f"the chain is {chain[0]} instead of {expected}"
    right = ["|"] * (2 * size + 1) + expected[1::2] if format == "tagged" else expected[-1:]
    if answer != right:
        return f"the answer is {answer} instead of {right}"
    return None
